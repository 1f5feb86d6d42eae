"""Series that every server has."""

from __future__ import annotations

from rmqha import __version__
from rmqha.cli.process_series import OfProcess


def test_series_when_scraped_then_release_and_process_with_the_labels_of_the_others() -> None:
    """Twice: what was made for one scrape does not come back in the next."""
    collector = OfProcess({"zone": "z1"})
    for _ in range(2):
        samples = {one.name: one for family in collector.collect() for one in family.samples}
        assert samples["rmqha_build_info"].labels["version"] == __version__
        assert samples["process_resident_memory_bytes"].value > 1 << 20
        assert samples["process_open_fds"].value >= 3
        assert {one.labels["zone"] for one in samples.values()} == {"z1"}


def test_series_when_a_label_has_the_name_of_our_own_then_ours_stays() -> None:
    """``metricsLabel=version:blue`` took the release off every server's page."""
    (build, *_) = OfProcess({"version": "blue", "zone": "z1"}).collect()
    assert build.samples[0].labels["version"] == __version__
    assert build.samples[0].labels["zone"] == "z1"
