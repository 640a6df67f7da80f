from hypothesis import example, given, settings
from hypothesis import strategies as st

from h2o_pack.memory.storages import STORAGES
from h2o_pack.memory.terms import CACHE, KV
from h2o_pack.model import Layer
from tests.bridge.memory.described import model, request

BACKENDS = ("iphone", "ipad", "mac", "cpu")
BY_BITS = ("4", "k8v4", "8", "16")
FEW = settings(max_examples=25)


@st.composite
def models(draw):
    """Transformers of all sizes; some have windows or recurrent layers between."""
    kv_heads, groups = draw(st.sampled_from([1, 2, 8])), draw(st.sampled_from([1, 4]))
    dim = draw(st.sampled_from([64, 128, 256]))
    full = Layer("full", kv_heads, dim, dim)
    window = draw(
        st.sampled_from(
            [
                full,
                Layer("sliding", kv_heads, dim, dim, window=512),
                Layer("recurrent", state_bytes=12_000),
            ]
        )
    )
    return model(
        layers=(full, window, window) * draw(st.integers(1, 8)),
        heads=kv_heads * groups,
        hidden_size=draw(st.sampled_from([256, 1024, 4096])),
        intermediate_size=draw(st.sampled_from([512, 8192])),
        vocabulary=draw(st.sampled_from([1000, 150_000])),
        context=32768,
        bits=draw(st.sampled_from([0, 4, 8])),
        dtype=draw(st.sampled_from(["float32", "bfloat16"])),
        weights=10**9,
    )


pairs = st.tuples(st.integers(20, 16000), st.integers(1, 4000))


@FEW
@given(models(), pairs, st.sampled_from(sorted(STORAGES)), st.sampled_from(BACKENDS))
def test_more_rows_take_more(model, pair, kv, backend):
    few, more = pair
    totals = [request(model, rows, kv=kv, step=256).plan(backend) for rows in (few, few + more)]
    assert totals[0].of(KV) < totals[1].of(KV)
    assert totals[0].total <= totals[1].total


FULL = Layer("full", 2, 64, 64)
RECURRENT = Layer("recurrent", state_bytes=12_000)
# Models whose plans take less for longer conversations if only the last chunk counts.
RECURRING = model(
    layers=(FULL, RECURRENT, RECURRENT) * 5, heads=2, hidden_size=4096, intermediate_size=8192,
    vocabulary=150_000, context=32768, dtype="float32", weights=10**9,
)  # fmt: skip
PLAIN = model(
    layers=(FULL,) * 21, heads=8, hidden_size=1024, intermediate_size=8192, vocabulary=1000,
    context=32768, bits=8, weights=10**9,
)  # fmt: skip
# Models whose full caches in few bits unpack fewer heads at a time, the longer they are.
WIDE = model(
    layers=(Layer("full", 2, 256, 256),) * 3, heads=8, hidden_size=256, intermediate_size=512,
    vocabulary=1000, context=32768, dtype="float32", weights=10**9,
)  # fmt: skip
WIDE_RECURRING = model(
    layers=(Layer("full", 2, 256, 256), RECURRENT, RECURRENT) * 2, heads=8, hidden_size=256,
    intermediate_size=512, vocabulary=1000, context=32768, dtype="bfloat16", weights=10**9,
)  # fmt: skip


@FEW
@example(RECURRING, (5767, 3122), "16", "ipad")
@example(PLAIN, (6314, 662), "16", "ipad")
@example(WIDE, (769, 768), "4", "iphone")
@example(WIDE_RECURRING, (5046, 256), "4", "mac")
@given(models(), pairs, st.sampled_from(sorted(STORAGES)), st.sampled_from(BACKENDS))
def test_longer_conversations_take_more(model, pair, kv, backend):
    for max_kv in (0, 512):
        totals = [
            request(model, max_kv, kv=kv, context=tokens).plan(backend).total
            for tokens in (pair[0], sum(pair))
        ]
        assert totals[0] <= totals[1]


@FEW
@given(models(), st.integers(1, 3000), st.integers(1, 1000), st.sampled_from(BACKENDS))
def test_longer_chunks_take_more(model, step, more, backend):
    for max_kv in (0, 512):
        totals = [
            request(model, max_kv, step=length).plan(backend).total
            for length in (step, step + more)
        ]
        assert totals[0] <= totals[1]


@FEW
@given(models(), st.integers(64, 8000), st.sampled_from(BACKENDS))
def test_more_bits_take_more(model, rows, backend):
    plans = [request(model, rows, kv=kv).plan(backend) for kv in BY_BITS]
    sizes = [plan.of(KV) for plan in plans]
    assert sizes == sorted(sizes)
    assert plans[1].total <= plans[2].total


@FEW
@given(models(), st.sampled_from(sorted(STORAGES)), st.sampled_from(BACKENDS))
def test_the_terms_add_up(model, kv, backend):
    plan = request(model, kv=kv).plan(backend)
    assert plan.total == sum(term.bytes for term in plan.terms)
    assert plan.total == plan.weights + plan.caches + plan.prefill + plan.of(CACHE) + plan.of(
        "app"
    )
    assert plan.prefill >= max(plan.prefill_peak, plan.decode_peak)
    assert all(term.bytes >= 0 for term in plan.terms)
