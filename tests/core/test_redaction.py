"""What is hidden, what stays readable, and that both halves of redaction agree."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from supervisor.core.redaction import (
    MASK,
    is_secret_name,
    mask,
    redact_argv,
    redact_url,
    secrets_in_argv,
    secrets_in_text,
    worth_masking,
)


@pytest.mark.parametrize(
    "name",
    [
        "TOKEN", "EXAMPLE_API_TOKEN", "TOKEN_GITHUB", "DIFY_KEY", "X-Api-Key", "apiKey", "APIKEY",
        "PGPASSWORD", "MYSQL_PWD", "Authorization", "Proxy-Authorization", "--client-secret",
        "AWS_SECRET_ACCESS_KEY", "githubToken", "GITHUB_PAT", "SECRETS", "Cookie", "DB_PASS",
        "INPUT_TOKEN", "API_TOKENS", "--auth",
    ],
)  # fmt: skip
def test_a_name_that_speaks_of_a_secret_is_taken_for_one(name: str) -> None:
    """A short list of whole names misses DIFY_KEY and X-Api-Key."""
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "REGION", "PWD", "OLDPWD", "KEYBOARD", "MONKEY", "TOKEN_FILE", "--max-tokens", "--tokens",
        "TOKENIZER", "PUBLIC_KEY", "DATABASE_URL", "Accept-Language", "SECRET_NAME", "--no-auth",
        "AUTHOR", "", "--", "_",
    ],
)  # fmt: skip
def test_a_name_that_only_resembles_one_stays_readable(name: str) -> None:
    """Masking a region or the limit of a language model makes logs useless."""
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["s", "--token", "abcd"], ["s", "--token", "***"]),
        (["s", "--api-key=abcd"], ["s", "--api-key=***"]),
        (["s", "-token", "abcd", "x"], ["s", "-token", "***", "x"]),
        (["--auth", "--token", "abcd"], ["--auth", "***", "***"]),
        (["--token=a=b c"], ["--token=***"]),
        (["--token="], ["--token="]),
        (["--token"], ["--token"]),
        (["env", "API_KEY=abcd", "REGION=eu"], ["env", "API_KEY=***", "REGION=eu"]),
        (["-H", "Authorization: Bearer abcd"], ["-H", "Authorization: ***"]),
        (["--header=X-Api-Key: abcd"], ["--header=X-Api-Key: ***"]),
        (["--header=Authorization:Bearer abcd"], ["--header=Authorization:***"]),
        (["sh", "-c", "exec env TOKEN=abcd srv"], ["sh", "-c", "exec env TOKEN=*** srv"]),
        (["TOKEN=ab cd"], ["TOKEN=***"]),
        (['{"apiKey": "abcd", "page": 1}'], ['{"apiKey": "***", "page": 1}']),
        (["say bearer abcdefgh now"], ["say bearer *** now"]),
        (["--url=http://u:p@h/?page=1"], ["--url=http://***@h/?page=1"]),
        (["--port", "8080", "--max-tokens", "99"], ["--port", "8080", "--max-tokens", "99"]),
    ],
)
def test_arguments_are_shown_without_their_secrets(argv: list[str], shown: list[str]) -> None:
    """Tokens in arguments end up in process lists, logs and status output."""
    assert redact_argv(argv) == tuple(shown)


@pytest.mark.parametrize(
    "argv",
    [
        ["--token", "${TOKEN}"],
        ["--token=${TOKEN}"],
        ["Authorization: Bearer ${TOKEN}"],
        ["http://h/?token=${TOKEN}"],
    ],
)
def test_a_reference_is_no_secret(argv: list[str]) -> None:
    """It is what an operator should write, and says where the value comes from."""
    assert redact_argv(argv) == tuple(argv)


def test_the_default_of_a_reference_is_a_literal() -> None:
    """`${TOKEN:-abcd}` has the secret in the file after all."""
    assert redact_argv(["--token", "${TOKEN:-abcd}"]) == ("--token", "***")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://user:pw@h:9/mcp?key=k&page=1", "http://***@h:9/mcp?key=***&page=1"),
        ("https://sometoken@h/", "https://***@h/"),
        ("https://h/?a=1&access_token=x#y", "https://h/?a=1&access_token=***#y"),
        ("https://h/?my_token=x;page=2", "https://h/?my_token=***"),
        ("https://h/#access_token=x&page=1", "https://h/#access_token=***&page=1"),
        ("https://h/?api%5Fkey=x", "https://h/?api%5Fkey=***"),
        ("https://h/?SIG=x&code=y&session=z", "https://h/?SIG=***&code=***&session=***"),
        ("postgres://app:p/w#d@h/db", "postgres://***@h/db"),
        ("http://h:80/x?mail=a@b", "http://h:80/x?mail=a@b"),
        ("http://[::1]:80/x?mail=a@b", "http://[::1]:80/x?mail=a@b"),
        ("http://h/?to=http://u:p@g/", "http://h/?to=http://***@g/"),
        ("http://h/?to=http%3A%2F%2Fu%3Ap%40g%2F&n=1", "http://h/?to=***&n=1"),
        ("http://h/?to=http%253A%252F%252Fu%253Ap%2540g", "http://h/?to=***"),
        ("http://h/?q=a%20b", "http://h/?q=a%20b"),
        ("no url: http://u:p@h failed", "no url: http://***@h failed"),
        ("http://h/x@y", "http://h/x@y"),
        ("", ""),
    ],
)
def test_a_url_keeps_its_place_and_loses_its_secrets(url: str, shown: str) -> None:
    """An error must still say which host and which page it was about."""
    assert redact_url(url) == shown


def test_a_value_that_is_encoded_too_often_is_hidden_unread() -> None:
    """Decoding without a bound would be a way to keep the daemon busy."""
    value = "%" + "25" * 12 + "41"

    assert redact_url(f"http://h/?to={value}") == f"http://h/?to={MASK}"


def test_the_password_of_a_url_is_masked_without_its_user_as_well() -> None:
    """A server that fails to log in often prints the password alone, decoded."""
    assert secrets_in_text("pg://app:pa%20ss@h") == {
        "app:pa%20ss", "app:pa ss", "pa%20ss", "pa ss",
    }  # fmt: skip


def test_short_and_harmless_values_are_not_masked_in_logs() -> None:
    """Masking every `80` or `none` would make logs unreadable and protect nothing."""
    assert worth_masking(["80", "abc", "none", "True", "abcd"]) == {"abcd"}


def test_the_lines_of_a_key_are_masked_one_by_one() -> None:
    """Standard error is read line by line, so the whole key never appears in it."""
    assert "MIIEvQIBADAN" in worth_masking(["-----BEGIN KEY-----\nMIIEvQIBADAN\nab\n"])


def test_overlapping_secrets_leave_nothing_of_either() -> None:
    """Replacing one after the other would leave the end of the second."""
    assert mask("xabcdefx abcd", ["abcd", "cdef", ""]) == "x***x ***"
    assert mask("aaaaa", ["aaaa"]) == "***"


TEXTS = st.text(alphabet=st.sampled_from("ab:/@?&#=%2f \"'{}$-.;\nTOKENkey"), max_size=60)


@given(TEXTS, st.lists(st.text(alphabet="abT:=", min_size=1, max_size=4)))
def test_no_secret_survives_masking(text: str, secrets: list[str]) -> None:
    """Whatever the text is; masking twice changes nothing more."""
    masked = mask(text, secrets)

    assert not any(secret in masked for secret in secrets)
    assert mask(masked, secrets) == masked


@given(st.lists(TEXTS, max_size=4), st.text(alphabet="xyz", min_size=8, max_size=12))
def test_a_literal_after_a_secret_flag_is_hidden_and_remembered(
    argv: list[str], secret: str
) -> None:
    """In both spellings, whatever stands around them; what is hidden is masked in logs too."""
    whole = [*argv, "--token", secret, f"--api-key={secret}", *argv]

    assert not any(secret in text for text in redact_argv(whole))
    assert secret in secrets_in_argv(whole)


@given(TEXTS)
def test_hiding_twice_hides_nothing_more(text: str) -> None:
    """A text may pass through more than one place that hides."""
    assert redact_url(redact_url(text)) == redact_url(text)
    assert redact_argv(redact_argv([text])) == redact_argv([text])
