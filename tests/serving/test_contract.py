"""What /openapi.json promises is kept, whatever comes: schemathesis makes up requests from it, good ones and bad ones."""

import pytest

from bertflow.serving import create_app
from tests.serving.conftest import LINES, Lines, Words

schemathesis = pytest.importorskip("schemathesis", reason="needs pip install schemathesis")
TAKE = ["/v1/embeddings", "/embed", "/similarity", "/v1/search", "/v1/compare", "/v1/duplicates"]
TELL = ["/v1/models", "/v1/models/{name}", "/v1/indexes", "/health"]
CASES = [*((path, mode) for path in TAKE for mode in ("POSITIVE", "NEGATIVE")), *((path, "POSITIVE") for path in TELL)]


@pytest.fixture(scope="module")
def schema():
    model = Words()
    return schemathesis.openapi.from_asgi("/openapi.json", create_app({"words": model}, {"lines": Lines(model, LINES)}))


# What the schema cannot say, as it depends on the model that is served, on files of the machine, or on other fields
DEPENDS = ("dimensions, not", "Token ids came", "not one of cl100k_base", "the pairs compared")


@pytest.mark.parametrize(("path", "mode"), CASES)
def test_the_promise_is_kept(schema, path, mode):
    from hypothesis import HealthCheck, given, settings
    from schemathesis import GenerationMode
    from schemathesis.checks import CHECKS

    acceptance = CHECKS.get_one("positive_data_acceptance")
    (operation,) = [found.ok() for found in schema.get_all_operations() if found.ok().path == path]

    @settings(max_examples=15, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=GenerationMode[mode]))
    def keeps(case):
        response = case.call()
        depends = response.status_code == 400 and any(reason in response.text for reason in DEPENDS)
        case.validate_response(response, excluded_checks=[acceptance] if depends else [])

    keeps()
