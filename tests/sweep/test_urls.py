"""No secret of a URL survives, however odd, and nothing else is lost."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from hypothesis import example, given, seed
from hypothesis import strategies as st

from sweep.urls import expanded, has_secret, hide, is_plain, origin, redact, redacted, secrets_in

# Long and odd enough that it cannot stand in a result by chance.
PASSWORDS = st.text("abcXYZ019/@:?#%&=+$!'\"\\ ~[]{}|é", min_size=4, max_size=20).map(lambda odd: f"hun{odd}ter2")
URLS = (
    "postgresql+psycopg://me:{}@db:5432/sweeps",
    "postgresql://{}@db:5432/sweeps",
    "postgresql://db:5432/sweeps?password={}",
    "postgresql://db:5432/sweeps?sslmode=require&sslpassword={}",
    "http://db:5432/sweeps?token={}",
    "https://me:{}@db:5432/sweeps",
    "redis://:{}@db:5432/sweeps",
)


@pytest.mark.parametrize("template", URLS)
@seed(16)
@given(password=PASSWORDS, encoded=st.booleans())
@example(password="hunter/2", encoded=False)
@example(password="hun@ter2", encoded=False)
def test_a_stored_url_has_no_secret(template: str, password: str, encoded: bool) -> None:
    url = template.format(quote(password, safe="") if encoded else password)
    kept = redacted(url)
    assert not any(piece in kept for piece in ("hun", "ter2"))
    assert redacted(kept) == kept


@pytest.mark.parametrize("template", [URLS[0], *URLS[5:]])
@pytest.mark.parametrize("password", ["hunter2", "hun/ter2", "hun@ter2", "hun:ter2", "hun?ter=2", "hun#ter2", "50%&x="])
def test_it_still_leads_to_the_same_place(template: str, password: str) -> None:
    assert redacted(template.format(password)) == f"{template.partition(':')[0]}://db:5432/sweeps"


@seed(16)
@given(template=st.sampled_from(URLS), password=PASSWORDS)
def test_whatever_a_library_quotes_of_it_is_masked(template: str, password: str) -> None:
    secrets = secrets_in(template.format(password))
    quoted = [password, quote(password, safe=""), json.dumps(password), repr(password), template.format(password)]
    for text in quoted:
        assert password not in redact(f'could not translate "{text}" to address: unknown host', secrets)


def test_the_pieces_of_a_password_that_is_split_in_the_wrong_place_are_masked() -> None:
    secrets = secrets_in("postgresql://me:first@second/third@db/sweeps")
    assert redact('no host "second/third@db" for user me', secrets) == 'no host "***/***@db" for user me'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgresql://me:secret@db/x and http://t@h:1/y", "postgresql://db/x and http://h:1/y"),
        ("cannot reach http://h/x?token=abc: refused", "cannot reach http://h/x?token=***"),
        ("'postgresql://me:my secret@db/x', expected", "'postgresql://db/x', expected"),
        ("open http://127.0.0.1:5000/#/compare-runs?runs=1", "open http://127.0.0.1:5000/#/compare-runs?runs="),
        ("host=db password=abc dbname=x", "host=db password=*** dbname=x"),
        ("user:$PGPASSWORD@host", "user:$PGPASSWORD@host"),
        ("?password=$PGPASSWORD", "?password=$PGPASSWORD"),
        ("first line http://a\nmail me@home", "first line http://a\nmail me@home"),
        ("sqlite:////home/me@lab/x.sqlite", "sqlite:////home/me@lab/x.sqlite"),
        ("act.yaml:3: methods[2]: unknown method 'a@b'", "act.yaml:3: methods[2]: unknown method 'a@b'"),
    ],
)
def test_texts_keep_what_is_no_secret(text: str, expected: str) -> None:
    assert redact(text).startswith(expected)


@pytest.mark.parametrize("value", ["sqlite", "journal", "/data/a@b/c", "sqlite:////home/me@lab/x", "s3://bucket/a/b"])
def test_what_holds_no_secret_stays_as_it_is(value: str) -> None:
    assert redacted(value) == value
    assert not has_secret(value)
    assert not secrets_in(value)


def test_settings_of_a_connection_stay() -> None:
    url = "postgresql://db/x?sslmode=require&connect_timeout=3"
    assert redacted(url) == url
    assert redacted(url.replace("//", "//me:pw@") + "&passfile=/x") == url


def test_a_webhook_is_known_by_its_host_alone() -> None:
    assert origin("https://hooks.example.org/services/T0/B0/secret?x=1") == "https://hooks.example.org"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://me:hunter2@db/x", True),
        ("postgresql://me:$PGPASSWORD@db/x", False),
        ("postgresql://me:${PGPASSWORD}@db/x", False),
        ("postgresql://me:$5ecret/@db/x", True),
        ("postgresql://me@db/x", False),
        ("postgresql://db/x?password=hunter2", True),
        ("postgresql://db/x?password=$PW&sslmode=require", False),
        ("http://ghp_abc@host/x", True),
        ("http://host/x?token=abc", True),
        ("http://host:5000", False),
    ],
)
def test_a_variable_is_no_secret_and_a_value_is(url: str, expected: bool) -> None:
    assert has_secret(url) is expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql+psycopg://db.example.org:5432/sweeps", True),
        ("postgresql://[::1]:5432/sweeps?sslmode=require", True),
        ("postgresql://$AWS_SECRET_ACCESS_KEY.evil.example/x", False),
        ("postgresql://${HOME}/x", False),
        ("postgresql://me:pw@db/x", False),
        ("postgresql://db/x?password=a", False),
        ("postgresql://db/x\nsecond", False),
        ("/etc/passwd", False),
        ("sqlite", False),
        ("postgresql://" + "a" * 10_000, False),
    ],
)
def test_a_url_from_elsewhere_is_a_place_or_it_is_refused(url: str, expected: bool) -> None:
    assert is_plain(url) is expected


def test_what_was_filled_in_is_hidden_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweep.urls._hidden", set())
    monkeypatch.setenv("SWEEP_TEST_PASSWORD", "pa/ss wo@rd")
    assert expanded("postgresql://me:$SWEEP_TEST_PASSWORD@db/x") == "postgresql://me:pa/ss wo@rd@db/x"
    assert "pa/ss" not in redact("FATAL: pa/ss wo@rd")
    hide({"search": {"optuna": {"storage": "mysql://a:abracadabra@b/c"}}, "list": ["http://h?token=opensesame"]})
    assert redact("abracadabra, opensesame") == "***, ***"
