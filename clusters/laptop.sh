#!/usr/bin/env bash
# Starts the pool of laptop.yaml in the foreground; Ctrl-C ends it. Options go to `ray start`.
set -euo pipefail

folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$folder/node-env.sh"
ray get-auth-token --generate > /dev/null

# Version 1 of the autoscaler adds nodes here but never takes them away.
export RAY_enable_autoscaler_v2=1
export RAY_FAKE_CLUSTER=1
export RAY_CLOUD_INSTANCE_ID=fffffffffffffffffffffffffffffffffffffffffffffffffff00000
export RAY_NODE_TYPE_NAME=ray.head.default
export AUTOSCALER_UPDATE_INTERVAL_S=1

exec ray start --head --block --num-cpus=0 --num-gpus=0 --dashboard-host=127.0.0.1 \
    --autoscaling-config="$folder/laptop.yaml" "$@"
