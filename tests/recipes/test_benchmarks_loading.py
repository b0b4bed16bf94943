"""The benchmark of loading an export, and the contenders of decoding that can be chosen."""

from recipes.benchmarks import decoding, loading


def facts(requests, load_seconds, resident_mb):
    return {"requests": requests, "load_seconds": load_seconds, "resident_mb": resident_mb}


def test_comparisons_are_of_buckets_first_answers_and_memory():
    """Two buckets: the small request of "ids" compiles the first, whose own request is fast."""
    ids = [["ids", [1, 3], 5.0], ["ids", [1, 5], 0.1], ["ids", [3, 5], 4.0]]
    plain = facts([["ids", [1, 3], 0.5], ["serving_default", [1, 3], 0.1]], 1.0, 100)
    compiled = facts([ids[0], ["plain", [1, 3], 0.5], *ids[1:]], 2.0, 160)
    rows = [
        {"name": name, "facts": x} for name, x in zip(loading.KINDS, (plain, compiled), strict=True)
    ]
    bucket, first, more = loading.comparisons(rows)
    assert (bucket["value"], first["value"], more["value"]) == (4.0, 7.0, 60)
    assert "1.5 for the plain" in first["statement"] and "30 MB for each of 2" in more["statement"]
    assert loading.comparisons(rows[:1]) == []


def test_contenders_of_decoding_are_those_that_are_chosen(monkeypatch):
    def names(*arguments):
        return {contender.name for contender in decoding.contenders(*arguments)}

    monkeypatch.setattr(decoding, "cores", lambda: 2)
    compiled = {decoding.COMPILED, decoding.ONE_THREAD[decoding.COMPILED]}
    engines = {"CTranslate2, 1 thread", "CTranslate2, 2 threads"}
    assert names("tiny", 1, 1, ["compiled", "ctranslate2"]) == compiled | engines
    engines |= {"CTranslate2, 2 workers of 1 thread"}
    ours = {*decoding.OURS, decoding.IN_PARTS}
    assert names("tiny", 32, 1) == {*ours, *engines, "Hugging Face generate"}
    monkeypatch.setattr(decoding, "cores", lambda: 1)  # further threads would share it
    alone = {decoding.COMPILED, "CTranslate2, 1 thread"}
    assert names("tiny", 1, 1, ["compiled", "ctranslate2"]) == alone
