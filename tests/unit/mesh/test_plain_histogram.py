from __future__ import annotations

from prometheus_client import CollectorRegistry, Histogram

from mesh.metrics import render
from mesh.plain_histogram import PlainHistogram

EDGES = (0.1, 1, 10)
VALUES = (0, 0.1, 0.5, 1, 2, 99)


def test_export_is_that_of_the_library() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    plain = PlainHistogram("a_seconds", "Text", EDGES)
    ours.register(plain)
    library = Histogram("a_seconds", "Text", buckets=EDGES, registry=theirs)
    for value in VALUES:
        plain.observe(value)
        library.observe(value)
    assert sorted(render(ours).splitlines()) == sorted(render(theirs).splitlines())
