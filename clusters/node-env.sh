# What every node of a pool sets before Ray starts. The launcher files of this folder source it, so
# that head, workers and drivers agree: Ray reads these values when a process starts, not later.

case ":$PATH:" in
    *":$HOME/sweep-env/bin:"*) ;;
    *) export PATH="$HOME/sweep-env/bin:$PATH" ;;
esac

# Ray's ports listen on all interfaces and run whatever code arrives. Without the token of
# ~/.ray/auth_token (or $RAY_AUTH_TOKEN) nothing is accepted.
export RAY_AUTH_MODE=token

# A job's working directory is deleted with its cluster; the records must not be.
export SWEEP_HOME="${SWEEP_HOME:-$HOME/sweep-home}"

# Fits without a GPU must not see the GPUs of others.
export RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO=1
export RAY_USAGE_STATS_ENABLED=0

# A cut link is noticed within half a minute; with Ray's own values it takes seven.
export RAY_grpc_client_keepalive_time_ms=10000
export RAY_grpc_client_keepalive_timeout_ms=10000
export RAY_health_check_period_ms=2000
export RAY_health_check_timeout_ms=3000
export RAY_health_check_failure_threshold=3

# PGPASSWORD, MLFLOW_TRACKING_USERNAME, MLFLOW_TRACKING_PASSWORD, ... as NAME=value lines.
# Needed on the head only: the driver alone talks to the database and to MLflow.
if [ -r "$HOME/.sweep-secrets" ]; then
    set -a
    . "$HOME/.sweep-secrets"
    set +a
fi
