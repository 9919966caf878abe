"""audit, fit, clean and predict on a table with missing values, categories and names of all kinds."""

from __future__ import annotations

import io
import json

import numpy as np
import pandas as pd
import pytest

from tests.own_data.conftest import CLASSES, ZOO

pytestmark = pytest.mark.usefixtures("small_pictures")

QUICK = ("--epochs", 15, "--quiet")


def test_a_table_with_gaps_categories_and_accents_goes_through_all_commands(wsl, zoo):
    audit = wsl.json("audit", zoo, *ZOO, "--json")
    assert audit["counts"]["class_names"] == sorted(CLASSES)
    assert audit["known_labels"] == 120
    report = wsl.json("fit", zoo, *ZOO, "--out", "modèle", *QUICK, "--no-track", "--json")
    assert report["class_names"] == sorted(CLASSES)
    assert report["held_out"]["accuracy"] > 0.8
    assert len(report["tried"]) == 8
    assert {each["model"] for each in report["tried"]} == {"linear"}

    frame = pd.read_csv(io.StringIO(wsl("predict", "modèle", zoo, "--id-column", "nom").stdout))
    assert list(frame.columns) == ["id", "label", "probability", *(f"p({name})" for name in sorted(CLASSES))]
    assert set(frame["label"]) == set(CLASSES)
    np.testing.assert_allclose(frame.filter(regex=r"^p\(").sum(axis=1), 1, atol=1e-5)

    summary = wsl.json("clean", zoo, *ZOO, "--out", "propre.csv", *QUICK, "--folds", 3, "--json")
    cleaned = pd.read_csv(wsl.home / "propre.csv")
    assert summary["accuracy"] > 0.9 > summary["accuracy_of_most_frequent_candidate"]
    assert sorted(cleaned["review"]) == list(range(1, 241))
    assert all(label in json.loads(cell) for label, cell in zip(cleaned["label"], cleaned["candidates"], strict=True))
    assert cleaned["id"].tolist() == frame["id"].tolist()


def test_the_terminal_and_the_page_tell_the_same_audit(wsl, zoo):
    text = wsl("audit", zoo, *ZOO, "--html", "audit.html").output
    page = (wsl.home / "audit.html").read_text(encoding="utf-8")
    for found in (text, page):
        assert "Which assumptions hold" in found
        assert "Estimators, best first" in found
    assert page.count("data:image/png;base64,") == 3
    assert "http://" not in page
    assert "https://" not in page
    assert "<script" not in page


def test_the_page_escapes_every_text_of_the_users(wsl, tmp_path):
    evil = "<script>alert(1)</script>&"
    rows = "".join(f"{i},{evil}|b$x_{{1}}\n{i},c\n" for i in range(40))
    (tmp_path / "x.csv").write_text(f"a,candidates\n{rows}", encoding="utf-8")
    wsl("audit", tmp_path / "x.csv", "--html", "p.html")
    page = (wsl.home / "p.html").read_text(encoding="utf-8")
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&amp;" in page


def test_help_shows_the_options_of_the_format(wsl, zoo):
    text = wsl("audit", zoo, "--help").output
    assert "--candidates-column" in text
    assert "--path" not in text
    assert "--file-column" not in text
    assert "--estimator-base-loss" in wsl("fit", zoo, "--estimator", "ppl", "--help").output


def test_fit_never_reads_true_labels_to_choose_or_to_train(wsl, zoo):
    """Permuting the true labels changes the reported accuracy, and nothing else."""
    table = pd.read_csv(zoo, dtype=str)
    known = table["vérité"].notna()
    table.loc[known, "vérité"] = np.roll(table.loc[known, "vérité"], 1)
    other = wsl.home / "other.csv"
    table.to_csv(other, index=False)
    reports = [wsl.json("fit", f, *ZOO, "--out", f.stem, *QUICK, "--no-track", "--json") for f in (zoo, other)]
    a, b = (report["held_out"] for report in reports)
    assert a["accuracy"] != b["accuracy"]
    assert a["covering_rate"] == b["covering_rate"]
    assert reports[0]["tried"] == reports[1]["tried"]
    first, second = (wsl("predict", name, zoo).stdout for name in ("zoo", "other"))
    assert first == second


def test_refit_uses_all_examples_with_the_chosen_settings(wsl, zoo):
    args = ("fit", zoo, *ZOO, *QUICK, "--no-track", "--json")
    plain, again = wsl.json(*args, "--out", "a"), wsl.json(*args, "--out", "b", "--refit")
    assert plain["held_out"] == again["held_out"]
    assert plain["training"]["lr"] == again["training"]["lr"]
    assert wsl("predict", "a", zoo).stdout != wsl("predict", "b", zoo).stdout


@pytest.mark.parametrize("ending", ["csv", "parquet", "json"])
def test_predictions_are_written_in_three_formats(wsl, zoo, ending):
    wsl("fit", zoo, *ZOO, "--out", "m", "--epochs", 1, "--lr", 0.1, "--weight-decay", 0, "--quiet", "--no-track")
    out = wsl.home / f"p.{ending}"
    wsl("predict", "m", zoo, "--out", out)
    read = {"csv": pd.read_csv, "parquet": pd.read_parquet, "json": pd.read_json}[ending]
    assert set(read(out)["label"]) <= set(CLASSES)


def test_prediction_needs_no_labels_and_takes_columns_in_any_order(wsl, zoo):
    wsl("fit", zoo, *ZOO, "--out", "m", "--epochs", 2, "--lr", 0.1, "--weight-decay", 0, "--quiet", "--no-track")
    table = pd.read_csv(zoo, dtype=str, keep_default_na=False)
    table[["pelage", "taille", "poids (kg)"]].to_csv("bare.csv", index=False)
    assert wsl("predict", "m", "bare.csv").stdout == wsl("predict", "m", zoo).stdout
    table[["pelage", "taille"]].to_csv("short.csv", index=False)
    assert "column 'poids (kg)' is missing" in wsl.refused("predict", "m", "short.csv")
    table.assign(taille="grand").to_csv("wrong.csv", index=False)
    assert "row 1, column 'taille': 'grand' is not a number" in wsl.refused("predict", "m", "wrong.csv")


def test_a_folder_of_images_with_a_table_of_candidates_goes_through_all_commands(wsl):
    from PIL import Image

    rng = np.random.default_rng(0)
    folder = wsl.home / "photos"
    (folder / "sub").mkdir(parents=True)
    lines = ["file,candidates,label"]
    colours = {"rouge": (200, 30, 30), "vert": (30, 200, 30), "bleu": (30, 30, 200)}
    for i in range(90):
        name, colour = list(colours.items())[i % 3]
        pixels = np.clip(np.array(colour) + rng.normal(0, 20, (10, 12, 3)), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / "sub" / f"{i:03}.png")
        other = rng.choice([c for c in colours if c != name])
        lines.append(f"sub/{i:03}.png,{name}|{other},{name}")
    (folder / "labels.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert wsl.json("audit", folder, "--size", 8, "--json")["features"] == [3, 8, 8]
    report = wsl.json("fit", folder, "--size", 8, "--out", "m", *QUICK, "--no-track", "--json")
    assert report["held_out"]["accuracy"] > 0.9
    predicted = pd.read_csv(io.StringIO(wsl("predict", "m", folder).stdout))
    assert predicted["id"][0] == "sub/000.png"
    assert (predicted["label"].to_numpy() == np.array(list(colours) * 30)).mean() > 0.9
    (folder / "sub" / "004.png").write_bytes(b"not an image")
    assert "004.png is not a readable image" in wsl.refused("audit", folder)
    (folder / "sub" / "004.png").unlink()
    assert "row 5, column 'file': there is no image 'sub/004.png'" in wsl.refused("audit", folder)


def test_ones_own_data_are_not_thinned(wsl, zoo):
    assert "not your own data" in wsl.refused("audit", zoo, *ZOO, "--imbalance", 10)
