"""The page as text: what it is made of, what it refuses, what it escapes."""

import json
import math
import re
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from matplotlib.figure import Figure

from circuits.command.reporting import add_report_options, run_report
from circuits.command.request import Parser
from circuits.report import gather, page
from circuits.report.attention import labels, packed
from circuits.report.figures import as_csv, as_svg, drawn
from circuits.report.inspected import inspected, read_inspected
from circuits.report.page import Paper, render, within, write_page
from circuits.report.verdicts import Reading, judged, tally
from circuits.report.whisker import MARGIN, WIDTH, describe, number, whisker
from circuits.results import file_of
from probes.figures import dots
from probes.measurement import Measurement
from tests.circuits.report.pages import HOSTILE, inspection, verdict, verdict_file
from trained.errors import BadInput
from trained.store import read_json
from trained.task import Batch


def asked(*words: str) -> Namespace:
    parser = Parser("report")
    add_report_options(parser)
    return parser.parse_args(words)


def paper(**changes: Any) -> Paper:
    return Paper(judged(verdict_file(**changes), "it"), "A paper")


class TestVerdicts:
    def test_the_tree_has_the_papers_order_and_ours_apart(self) -> None:
        found = judged(verdict_file(), "it")
        assert [b.headline for b in found.branches] == ["Learning", "Editing"]
        assert [b.weight for b in found.branches] == [5, 3]
        assert [leaf.id for b in found.own for leaf in b.leaves] == ["toy.own"]

    def test_the_score_is_by_weight_and_never_counts_what_is_ours(self) -> None:
        score = paper().score
        assert score.score == 3 / 8
        assert score.tested == 1.0
        assert score.counts["refuted"] == 1

    def test_stored_verdicts_stand_beside_and_are_not_counted(self) -> None:
        stored = {"verdict": "refuted", "mean": 0.1, "preset": "paper", "seeds": [1]}
        rows = [verdict("toy.a", stored=stored), verdict("toy.b")]
        found = paper(study="lego", verdicts=rows)
        assert found.score.score == 1.0
        # All claims of that run, also those that this one does not have.
        long_run = gather.stored_score(found.judged)
        counted = read_json(file_of("lego"))["score"]["paper"]
        assert long_run is not None
        assert round(long_run.score, 4) == counted["weighted"]
        assert long_run.counts["refuted"] == counted["refuted"]
        assert gather.stored_score(paper().judged) is None
        assert gather.stored_score(paper(verdicts=rows).judged) is None

    def test_each_row_has_the_command_that_repeats_it(self) -> None:
        found = judged(verdict_file(command="reasonscope confirm toy"), "it")
        assert found.leaves[0].command == "reasonscope confirm toy --only toy.success"
        run = judged(verdict_file(), "it", target="runs/my run")
        assert run.leaves[0].command.startswith("reasonscope probe 'runs/my run' ")

    def test_a_hostile_name_cannot_leave_its_word_of_the_command(self) -> None:
        row = judged(verdict_file(verdicts=[verdict("a; rm -rf /")]), "it").leaves[0]
        assert row.command.endswith("--only 'a; rm -rf /'")

    def test_what_is_only_shown_stands_in_the_details_without_an_expectation(
        self,
    ) -> None:
        shown = [{"name": "replayed", "values": [0.25, 0.75], "reason": ""}]
        text = render([paper(verdicts=[verdict("toy.a", shown=shown)])])
        details = text[text.index("Shown only") :]
        found = details[: details.index("</ul>")]
        assert "<b>replayed</b>" in found
        assert "0.5" in found
        assert "expected" not in found
        assert "Shown only" not in render([paper()])

    def test_a_claim_that_was_not_tested_has_no_values(self) -> None:
        row = verdict("toy.a", "not tested", conditions=[], nulls=[], reason="no arm")
        found = paper(verdicts=[row])
        assert found.score.tested == 0.0
        assert "no arm" in render([found])

    @pytest.mark.parametrize(
        "broken",
        [
            {},
            [],
            None,
            verdict_file(schema=1),
            verdict_file(verdicts=[{"claim": "x"}]),
            verdict_file(verdicts=[verdict("x", "splendid")]),
            verdict_file(verdicts=[verdict("x", weight="heavy")]),
            verdict_file(verdicts=[verdict("x", nulls=3)]),
            verdict_file(arms={"a": {}}),
        ],
    )
    def test_what_is_no_verdict_file_is_refused_in_a_line(self, broken: Any) -> None:
        with pytest.raises(BadInput, match=r"^it is no verdict file of ours: "):
            judged(broken, "it")

    def test_tally_of_nothing(self) -> None:
        assert tally([]).score == 0.0


class TestWhisker:
    READING = Reading("accuracy", ">= 0.9", (0.94, 0.96), 0.93, 0.97)

    def test_order_on_the_axis_is_that_of_the_numbers(self) -> None:
        null = Reading("untrained", "not >= 0.9", (0.1,))
        found = whisker(self.READING, [null], paper=1.0)
        assert found is not None
        assert found.interval is not None
        assert found.mean is not None
        assert found.paper is not None
        low, high = found.interval
        places = [found.nulls[0].x, found.region[0], low, found.mean.x, high]
        assert places == sorted(places)
        assert found.paper.x == max(places[-1], found.paper.x)
        assert sum(found.region) == WIDTH

    def test_a_two_sided_expectation_has_two_ends(self) -> None:
        found = whisker(replace(self.READING, expected="in [0.9, 1.0]"))
        assert found is not None
        assert 0 < found.region[0] < sum(found.region) < WIDTH

    def test_orders_of_magnitude_are_drawn_on_a_logarithmic_axis(self) -> None:
        tiny = Reading("error", "<= 1e-10", (5e-15, 6e-15), 5e-15, 6e-15)
        found = whisker(tiny, [Reading("shuffled", "not <= 1e-10", (2.0,))])
        assert found is not None
        assert found.logarithmic
        assert found.mean is not None
        assert MARGIN <= found.mean.x < found.region[1] < found.nulls[0].x

    def test_one_number_stands_in_the_middle(self) -> None:
        found = whisker(Reading("size", ">= 2", (2.0,), 2.0, 2.0))
        assert found is not None
        assert found.mean is not None
        assert found.mean.x == WIDTH / 2

    def test_nothing_measured_is_no_picture(self) -> None:
        assert whisker(Reading("size", ">= 2", (None,))) is None

    def test_an_undefined_value_leaves_the_mean_undefined(self) -> None:
        found = whisker(Reading("size", ">= 2", (None, 3.0)))
        assert found is not None
        assert found.mean is None

    def test_it_says_what_it_shows(self) -> None:
        text = describe(self.READING, [Reading("untrained", "", (0.1,))], paper=1.0)
        assert text == (
            "accuracy: 0.95 [0.93, 0.97]; expected >= 0.9; null untrained 0.1; paper 1"
        )
        assert number(-0.5) == "−0.5"
        assert number(None) == "undefined"


class TestFigures:
    def test_numbers_of_lines_bars_points_and_grids(self) -> None:
        figure = Figure()
        left, right = figure.subplots(1, 2)
        left.plot([0.0, 1.0], [2.0, 3.0], label="loss")
        left.scatter([5.0], [6.0], label="seeds")
        left.set_title("curves")
        bars = right.bar([0, 1], [7.0, 8.0], label="heads")
        right.set_xticks([0, 1], ["a", "b"])
        image = right.imshow([[0.25, 0.5]])
        right.set_xticks([0, 1], ["a", "b"])
        right.set_yticks([0], ["row"])
        figure.colorbar(image, ax=right)
        assert bars
        lines = as_csv(figure).splitlines()
        assert lines[0] == "panel,series,x,y,value"
        assert "curves,loss,1,3," in lines
        assert "curves,seeds,5,6," in lines
        assert "1,heads,b,8," in lines
        assert "1,,b,row,0.5" in lines
        assert not [line for line in lines if line.startswith("2,")]

    def test_rows_of_dots_have_names_and_levels_no_false_places(self) -> None:
        values = torch.tensor([[0.25, 0.5], [0.75, math.nan]])
        named = {"edit": ("none", "swap"), "model": ("one", "other")}
        found = Measurement(values, ("edit", "model"), named, name="two\nlines")
        axes = dots(found, y="edit", hue="model")
        axes.axvline(0.5, label="chance")
        axes.axhline(0.5)
        lines = as_csv(cast(Figure, axes.figure)).splitlines()
        assert "two lines,one,0.25,none," in lines
        assert "two lines,one,0.75,swap," in lines
        assert "two lines,chance,0.5,," in lines
        assert len(lines) == 1 + 4 + 1

    def test_rows_may_be_named_by_numbers(self) -> None:
        figure = Figure()
        axes = figure.subplots()
        axes.plot([0.25], [0.0], "o", label="error")
        axes.set_yticks([0], [64])  # type: ignore[list-item]
        assert "0,error,0.25,64," in as_csv(figure).splitlines()

    def test_a_wide_figure_takes_a_row_of_its_own(self) -> None:
        wide, narrow = (drawn("x", Figure((w, 3)), "x") for w in (12, 5))
        assert (wide.wide, narrow.wide) == (True, False)
        assert 'class="wide"' in render([replace(paper(), figures=(wide,))])
        assert 'class="wide"' not in render([replace(paper(), figures=(narrow,))])

    def test_text_is_text_and_nothing_tells_the_time(self) -> None:
        figure = Figure()
        figure.subplots().set_title("cosine by depth")
        assert "cosine by depth" in as_svg(figure)
        assert as_svg(figure) == as_svg(figure)

    def test_a_crowded_figure_becomes_small(self) -> None:
        figure = Figure()
        points = torch.randn(20_000, 2, generator=torch.Generator().manual_seed(0))
        figure.subplots().scatter(*points.T.numpy())
        assert len(as_svg(figure)) < 400_000

    def test_figures_beyond_the_room_are_named(self) -> None:
        small, large = (drawn(k, Figure(), "x" * n) for k, n in (("a", 1), ("b", 1)))
        large = replace(large, svg=large.svg + " " * 10_000)
        room = len(small.uri) + len(small.numbers)
        (fitted,) = within([replace(paper(), figures=(small, large))], room + 100)
        assert [figure.kind for figure in fitted.figures] == ["a"]
        assert fitted.left_out == ("b",)
        assert "reasonscope figure b" in render([fitted])


class TestAttention:
    def test_labels_are_tokens_with_their_most_particular_role(self) -> None:
        tokens = torch.tensor([[7, 8]])
        roles = {"symbols": torch.tensor([[0, 1]]), "last": torch.tensor([[1]])}
        batch = Batch(tokens, torch.tensor([1]), roles=roles)
        assert labels(batch) == ["7 symbols", "8 last"]

    def test_a_clauses_code_is_shown_as_its_place(self) -> None:
        batch = Batch(torch.tensor([[28609766, 7]]), torch.tensor([1]), roles={})
        assert labels(batch) == ["1.", "7"]

    def test_weights_are_bytes(self) -> None:
        assert packed(torch.tensor([0.0, 0.5, 1.0])) == "AID/"


class TestInspected:
    def test_the_answer_is_marked_in_the_lens(self) -> None:
        lens, patching = inspected(inspection()).grids
        marked = [[cell.share for cell in row] for row in lens.rows]
        assert marked == [[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
        assert lens.rows[1][-1].text == "1"
        assert patching.rows[1][1].share == 1.0
        assert patching.rows[0][1].text == "0.00"

    def test_a_foreign_file_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "inspect.json").write_text('{"model": "m"}')
        with pytest.raises(BadInput, match="was not written by inspect"):
            read_inspected(tmp_path)
        with pytest.raises(BadInput, match=r"no inspect\.json"):
            read_inspected(tmp_path / "nowhere")


class TestPage:
    def test_it_is_whole(self) -> None:
        text = render([paper()], [inspected(inspection())])
        assert not re.findall(r"""(?:src|href)=["']?(?!data:|#)[^"'>]""", text)
        assert "@import" not in text
        assert "url(" not in text
        assert "default-src &#39;none&#39;" in text or "default-src 'none'" in text

    def test_hostile_names_are_text(self) -> None:
        text = render(
            [paper(**HOSTILE)], [inspected(inspection(prompt="</script><b>"))]
        )
        assert text.count("</script>") == text.count("<script")
        assert "<img src=x" not in text
        assert "&lt;img src=x" in text

    def test_the_same_input_gives_the_same_page(self) -> None:
        assert render([paper()]) == render([paper()])

    def test_a_page_that_is_too_large_is_refused(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(page, "LARGEST", 1000)
        with pytest.raises(BadInput, match="give fewer runs"):
            render([paper()])

    def test_it_is_written_whole_or_not_at_all(self, tmp_path: Path) -> None:
        file = write_page(tmp_path / "deep" / "page.html", [paper()])
        assert file.read_text("utf-8").endswith("</html>")
        assert [p.name for p in file.parent.iterdir()] == ["page.html"]


class TestCommand:
    def test_verdict_files(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file, out = tmp_path / "v.json", tmp_path / "page.html"
        file.write_text(json.dumps([verdict_file(), verdict_file(study="recall")]))
        assert run_report(asked(str(file), "-o", str(out))) == 0
        assert capsys.readouterr().out.strip() == str(out)
        text = out.read_text("utf-8")
        assert "Fine-Tuning Dynamics of In-Context Factual Recall" in text
        assert text.count('class="paper"') == 2

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (("nowhere", "-o", "page.html"), "unknown run or zoo run"),
            (("-o", "page.pdf"), "ends with .html"),
            (("-o", "/dev/null/page.html"), "cannot be written"),
        ],
    )
    def test_bad_input(self, words: tuple[str, ...], message: str) -> None:
        with pytest.raises(BadInput, match=message):
            run_report(asked(*words))

    def test_a_broken_file_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "v.json").write_text("{")
        with pytest.raises(BadInput, match="cannot read"):
            run_report(asked(str(tmp_path / "v.json"), "-o", "page.html"))

    def test_without_runs_the_shipped_ones_are_shown(self) -> None:
        assert set(gather.default_targets()[:5]) <= {
            "recall",
            "analogy",
            "bridge",
            "symbols",
            "lego",
        }
