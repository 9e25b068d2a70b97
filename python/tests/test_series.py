"""Forecasts, scores and anomalies of series, from files, arrays and tables."""

import json
import os
import subprocess
from math import lgamma, log, pi

import numpy as np
import pytest

import linnet

SIZES = {"layers": 1, "heads": 2, "width": 16, "feed_forward": 32, "positions": "rotary"}
ROWS = 300


def numbers():
    steps = np.arange(ROWS)
    return np.stack([np.sin(steps / 5) * 3 + 10, np.cos(steps / 7) * 100], axis=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("series")
    values = numbers()
    lines = ["time,wave,level"] + [f"2024-03-{1 + i // 24:02} {i % 24:02}:00:00,{a:.9g},{b:.9g}" for i, (a, b) in enumerate(values)]
    (path / "hours.csv").write_text("\n".join(lines) + "\n")
    swapped = ["level,note,wave"] + [f"{b:.9g},5,{a:.9g}" for a, b in values]
    (path / "swapped.csv").write_text("\n".join(swapped) + "\n")
    return path


def trained(folder, out, apart=False, head="student-t", **data):
    settings = {
        "model": {**SIZES, "value_head": head},
        "data": {"kind": "series", "length": 16, "columns_apart": apart, **data},
        "training": {"steps": 30, "batch": 8, "learning_rate": 1e-2},
    }
    return linnet.train(settings, folder / "hours.csv", out=folder / out).model


@pytest.fixture(scope="module")
def model(folder):
    return trained(folder, "run")


@pytest.fixture(scope="module")
def apart(folder):
    return trained(folder, "apart", apart=True)


class Table:
    """What is taken of a DataFrame."""

    class Index:
        dtype, name = np.dtype(int), None

    index = Index()
    ndim = 2

    def __init__(self, columns, values):
        self.columns, self.values, self.shape = columns, values, np.shape(values)

    def copy(self, deep):
        return Table(self.columns, self.values)

    def __getitem__(self, name):
        return self.values[:, self.columns.index(name)]

    def to_csv(self, index):
        assert not index
        rows = [",".join("" if cell != cell else repr(float(cell)) for cell in row) for row in self.values]
        return "\n".join([",".join(map(str, self.columns)), *rows]) + "\n"

    @property
    def iloc(self):
        table = self

        class Positions:
            def __getitem__(self, places):
                if isinstance(places[1], int):
                    return table.values[:, places[1]]
                return Table([table.columns[i] for i in places[1]], table.values[:, places[1]])

        return Positions()

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype)


def test_damaged_descriptions_of_columns_are_errors(model, tmp_path):
    model.save(tmp_path)
    for text in ("[]", "{", '{"names": "value"}'):
        (tmp_path / "columns.json").write_text(text)
        with pytest.raises(linnet.Error, match="columns.json"):
            linnet.load(tmp_path).column_names


@pytest.mark.parametrize("name", ["model", "apart"])
def test_files_arrays_and_tables_are_the_same_series(request, folder, name):
    model = request.getfixturevalue(name)
    assert model.column_names == ("wave", "level")
    of_file = linnet.forecast(model, folder / "hours.csv", 5, samples=20)
    assert of_file.samples.shape == (20, 5, 2) and of_file.samples.dtype == np.float32
    assert of_file.column_names == ("wave", "level")
    assert of_file.times[0] == "2024-03-13 12:00:00" and len(of_file.times) == 5
    values = numbers()
    table = Table(["level", "other", "wave"], np.stack([values[:, 1], values[:, 0] * 0, values[:, 0]], axis=1))
    for series in (folder / "swapped.csv", values, table):
        found = linnet.forecast(model, series, 5, samples=20)
        np.testing.assert_allclose(found.samples, of_file.samples, rtol=1e-4)
        assert found.times == ()
        np.testing.assert_allclose(linnet.score(model, series).rows, linnet.score(model, folder / "hours.csv").rows, atol=1e-3)


@pytest.mark.parametrize("name", ["model", "apart"])
def test_forecasts_are_in_the_units_of_the_data(request, name):
    model = request.getfixturevalue(name)
    found = linnet.forecast(model, numbers(), 8, samples=100)
    assert np.abs(found.mean[:, 0] - 10).max() < 6
    assert np.abs(found.mean[:, 1]).max() > 20
    low, high = found.quantile([0.1, 0.9])
    assert (low <= found.median).all() and (found.median <= high).all()
    np.testing.assert_array_equal(found.quantile(0.5), found.median)


def test_draws_depend_on_the_seed_and_their_number_alone(model):
    first = linnet.forecast(model, numbers(), 3, samples=10, seed=5).samples
    np.testing.assert_array_equal(linnet.forecast(model, numbers(), 3, samples=4, seed=5, threads=1).samples, first[:4])
    assert not np.array_equal(linnet.forecast(model, numbers(), 3, samples=10, seed=6).samples, first)
    assert np.ptp(linnet.forecast(model, numbers(), 3, samples=10, temperature=0).samples, axis=0).max() == 0


def test_scores_are_those_of_a_session(model):
    values = numbers()[:40]
    scores = linnet.score(model, values)
    session = model.session()
    expected = []
    for row in values:
        mean, scale, freedom = session.densities(0)
        for number, m, s, v in zip(row.astype(np.float32), mean, scale, freedom):
            z = float(number - m) / float(s)
            expected.append(
                -(lgamma((v + 1) / 2) - lgamma(v / 2) - log(v * pi) / 2 - log(s) - (v + 1) / 2 * np.log1p(z * z / v))
            )
        session.step(row)
    np.testing.assert_allclose(scores.numbers, np.reshape(expected, (-1, 2)), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(scores.rows, scores.numbers.sum(axis=1))
    assert list(scores.has_context) == [False] + [True] * 39
    assert scores.state_bytes > 0


def test_numbers_that_are_not_known_have_no_score(model):
    values = numbers()
    values[50, 1] = np.nan
    scores = linnet.score(model, values)
    assert np.isnan(scores.numbers[50, 1]) and np.isnan(scores.numbers).sum() == 1
    assert scores.rows[50] == scores.numbers[50, 0]


@pytest.mark.parametrize("name", ["model", "apart"])
def test_anomalies(request, folder, name):
    model = request.getfixturevalue(name)
    values = numbers()
    values[200:203, 0] += 500
    found = linnet.score(model, values).anomalies(calibrate=150, quantile=0.99, gap=3)
    assert len(found.scores) == ROWS
    hit = [anomaly for anomaly in found.found if anomaly.first <= 200 <= anomaly.last]
    assert len(hit) == 1 and hit[0].column == "wave" and hit[0].first_time == ""
    assert hit[0].highest > found.threshold
    timed = linnet.score(model, folder / "hours.csv").anomalies(threshold=-1e9)
    assert timed.found[0].first == 1 and timed.found[0].first_time == "2024-03-01 01:00:00"
    assert timed.found[0].last == ROWS - 1


def test_anomalies_as_the_program_finds_them(model, folder):
    program = os.environ.get("LINNET_PROGRAM")
    if not program:
        pytest.skip("the program is not built")
    command = [program, "score", str(folder / "run"), "--data", str(folder / "swapped.csv"), "--quantile", "0.98", "--json"]
    printed = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    found = linnet.score(model, folder / "swapped.csv").anomalies(quantile=0.98)
    assert found.threshold == pytest.approx(printed["threshold"], rel=1e-5)
    assert [a.first for a in found.found] == [row["first"] for row in printed["anomalies"]]


def test_a_model_of_squared_errors_predicts_means_alone(folder):
    model = trained(folder, "means", head="squared-error", patch=4, horizon=8)
    found = linnet.forecast(model, folder / "hours.csv", 10)
    assert found.samples.shape == (1, 10, 2)
    np.testing.assert_array_equal(found.mean, found.samples[0])
    with pytest.raises(linnet.UsageError, match="several samples"):
        found.quantile(0.5)
    session = model.session()
    session.step(numbers()[:4].reshape(-1))
    with pytest.raises(linnet.UsageError, match="predicts means alone"):
        session.draw(0)
    assert session.draw(0, temperature=0).shape == (16,)


def test_refusals(model, folder):
    values = numbers()
    tokens = linnet.random_model({"model": {**SIZES, "length": 8, "vocabulary": 4}})
    for arguments, words in [
        ((tokens, values), "one of tokens"),
        ((model, values[:, :1]), "expected 2 columns"),
        ((model, values[:0]), "rows, columns"),
        ((model, values[:, 0]), "rows, columns"),
        ((model, np.full((20, 2), np.inf)), "finite"),
        ((model, values + 1e10), "subtract a constant"),
        ((model, Table(["wave"], values[:, :1])), "expected data.columns among wave, got .level."),
        ((model, values, 0), "steps in 1"),
        ((model, values, 2**25), "steps in 1"),
    ]:
        with pytest.raises(linnet.UsageError, match=words):
            linnet.forecast(*arguments)
    for options, words in [
        ({"samples": 0}, "samples in 1"),
        ({"context": -1}, "context"),
        ({"temperature": -1.0}, "temperature"),
        ({"missing": "refuse"}, "for a file or a DataFrame"),
        ({"threads": -1}, "threads"),
    ]:
        with pytest.raises(linnet.UsageError, match=words):
            linnet.forecast(model, values, **options)
    with pytest.raises(linnet.UsageError, match="forward-fill"):
        linnet.score(model, folder / "hours.csv", missing="drop")
    with pytest.raises(linnet.Error, match="none.csv"):
        linnet.score(model, folder / "none.csv")
    with pytest.raises(linnet.ArgumentTypeError, match="linnet.Model"):
        linnet.score("model", values)
    scores = linnet.score(model, values)
    for options in [{"window": 0}, {"quantile": 1.5}, {"gap": -1}, {"calibrate": 1}]:
        with pytest.raises(linnet.UsageError):
            scores.anomalies(**options)


@pytest.mark.parametrize("name", ["model", "apart"])
def test_data_sets_of_other_files_have_the_columns_of_the_model(request, folder, name):
    model = request.getfixturevalue(name)
    whole = linnet.Dataset.open(folder / "hours.csv", model, split="test")
    found = linnet.Dataset.open(folder / "swapped.csv", model, split="test")
    assert len(found) == len(whole)
    np.testing.assert_allclose(found.values(3), whole.values(3), rtol=1e-5, atol=1e-5)
    with pytest.raises(linnet.UsageError, match="expected the columns wave, level of the model"):
        linnet.Dataset.open(folder / "swapped.csv", model, split="test", settings={"data.columns": "level,wave"})
    # All rows of a file are for testing, as few as an example has.
    lines = (folder / "hours.csv").read_text().splitlines()
    (folder / "short.csv").write_text("\n".join(lines[:18]) + "\n")
    assert len(linnet.Dataset.open(folder / "short.csv", model, split="test")) == (4 if name == "apart" else 2)


def test_a_file_behind_the_dates_of_the_split_is_for_testing(folder):
    model = trained(folder, "dates", split="2024-03-08,2024-03-10")
    lines = (folder / "hours.csv").read_text().replace("2024-03", "2025-07")
    (folder / "later.csv").write_text(lines)
    later = linnet.Dataset.open(folder / "later.csv", model, split="test")
    assert linnet.evaluate(model, later)["tokens"] == 2 * ROWS


def test_columns_apart_are_normalised_by_the_statistics_of_the_training(apart, folder):
    lines = ["wave,level"] + [f"{a + 3:.9g},{b:.9g}" for a, b in numbers()]
    (folder / "higher.csv").write_text("\n".join(lines) + "\n")
    higher = linnet.Dataset.open(folder / "higher.csv", apart, split="test").values(0)
    same = linnet.Dataset.open(folder / "hours.csv", apart, split="test").values(0)
    assert np.abs((higher - same) - 3 / numbers()[:240, 0].std()).max() < 1e-3


def test_tables_are_read_as_files(folder):
    config = {"model": SIZES, "training": {"steps": 4, "batch": 4, "evaluate_examples": 1000}}
    data = {"kind": "series", "length": 8, "patch": 3, "horizon": 6, "columns_apart": True, "split": "0.6,0.8"}
    config["data"] = data
    values = numbers()
    (folder / "table.csv").write_text("column 0,column 1\n" + "".join(f"{a!r},{b!r}\n" for a, b in values.tolist()))
    of_file = linnet.train(config, folder / "table.csv")
    of_array = linnet.train(config, values)
    of_table = linnet.train(config, Table(["column 0", "column 1"], values))
    for found in (of_array, of_table):
        np.testing.assert_array_equal(found.bits, of_file.bits)
        assert found.evaluation["bits"] == of_file.evaluation["bits"]
        assert found.model.column_names == ("column 0", "column 1")
    model = of_array.model
    assert model.config["model"]["patch"] == 3 and model.config["model"]["targets"] == 6
    assert linnet.evaluate(model, values)["bits"] == pytest.approx(of_array.evaluation["bits"], rel=1e-6)
    for split in ("training", "validation", "test"):
        of_path = linnet.Dataset.open(folder / "table.csv", model, split=split)
        in_memory = linnet.Dataset.open(values, model, split=split)
        assert len(in_memory) == len(of_path)
        np.testing.assert_array_equal(in_memory.values(5), of_path.values(5))
    assert len(linnet.Dataset.open(values, model, split="test")) == 2 * (ROWS - 5)
    gap = values.copy()
    gap[3, 0] = np.nan
    with pytest.raises(linnet.Error, match='the table: expected a number in column "column 0" of line 5'):
        linnet.train(config, gap)
    assert linnet.train(config, gap, settings={"data.missing": "forward-fill"}).step == 4
    with pytest.raises(linnet.Error, match="the table: expected numbers that f32 can hold"):
        linnet.train(config, values + 1e10)


def test_frames_of_pandas(folder, model):
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(folder / "hours.csv", parse_dates=["time"])
    of_file = linnet.forecast(model, folder / "hours.csv", 3, samples=5)
    for same in (frame, frame.set_index("time"), frame[["level", "wave", "time"]]):
        found = linnet.forecast(model, same, 3, samples=5)
        np.testing.assert_allclose(found.samples, of_file.samples, rtol=1e-5)
        assert found.times == of_file.times
    frame.loc[4, "wave"] = np.nan
    with pytest.raises(linnet.Error, match='in column "wave" of line 6'):
        linnet.score(model, frame)
    assert len(linnet.score(model, frame, missing="forward-fill").rows) == ROWS
    settings = {"model": SIZES, "data": {"kind": "series", "length": 16, "split": "2024-03-08,2024-03-10"}, "training": {"steps": 2, "batch": 4}}
    frame = pandas.read_csv(folder / "hours.csv", parse_dates=["time"])
    bits = linnet.train(settings, folder / "hours.csv").bits
    for same in (frame, frame.set_index("time")):
        found = linnet.train(settings, same)
        np.testing.assert_array_equal(found.bits, bits)
        assert found.model.column_names == ("wave", "level")


def test_truth_values_of_pandas_are_numbers():
    pandas = pytest.importorskip("pandas")
    truths = [True, False] * 20
    config = {"model": {**SIZES}, "data": {"kind": "series", "length": 8}, "training": {"steps": 2, "batch": 4}}
    bits = linnet.train(config, pandas.DataFrame({"a": truths})).bits
    np.testing.assert_array_equal(linnet.train(config, pandas.DataFrame({"a": pandas.array(truths, "boolean")})).bits, bits)
    gap = pandas.DataFrame({"a": pandas.array([*truths[:-1], None], "boolean")})
    with pytest.raises(linnet.Error, match='in column "a" of line 41'):
        linnet.train(config, gap)


def test_a_frame_is_predicted_by_its_names(folder, model):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(numbers()[:20], columns=["wave", "level"])
    expected = model.predict(frame[["wave", "level"]].to_numpy())
    for same in (frame, frame[["level", "wave"]].assign(other="x")):
        np.testing.assert_array_equal(model.predict(same).mean, expected.mean)
    with pytest.raises(linnet.UsageError, match="none called level"):
        model.predict(frame[["wave"]])


def test_frames_with_names_times_and_truths_of_every_kind():
    pandas = pytest.importorskip("pandas")
    values = numbers()[:, :1]
    settings = {"model": SIZES, "data": {"kind": "series", "length": 16}, "training": {"steps": 1, "batch": 2}}
    assert linnet.train(settings, pandas.DataFrame(values)).model.column_names == ("column 0",)
    truths = pandas.DataFrame({"on": np.arange(ROWS) % 3 == 0, "time": values[:, 0]}, index=pandas.date_range("2024-01-01", periods=ROWS))
    model = linnet.train(settings, truths).model
    assert model.column_names == ("on", "time")
    assert linnet.forecast(model, truths, 1).times == ("2024-10-27 00:00:00",)
    for frequency, expected in [("M", "2049-01-01"), ("Q", "2099-01-01"), ("Y", "2324-01-01"), ("D", "2024-10-27")]:
        frame = pandas.DataFrame({"x": values[:, 0]}, index=pandas.period_range("2024-01-01", periods=ROWS, freq=frequency))
        model = linnet.train(settings, frame).model
        assert model.column_names == ("x",)
        assert linnet.forecast(model, frame, 1).times[0].startswith(expected)


def test_models_of_sound_take_no_series(tmp_path):
    model = linnet.random_model({"model": {**SIZES, "columns": 2, "length": 16, "vocabulary": 0}})
    model.save(tmp_path / "sound")
    (tmp_path / "sound" / "columns.json").write_text('{"rate": 8000, "channels": 2}')
    model = linnet.load(tmp_path / "sound")
    with pytest.raises(linnet.UsageError, match="one of sound"):
        linnet.evaluate(model, numbers())
    with pytest.raises(linnet.UsageError, match="sound"):
        linnet.forecast(model, numbers())


def test_columns_that_are_chosen_have_statistics_of_their_own(apart, folder):
    lines = ["a,b"] + [f"{x - 60:.9g},{y + 5000:.9g}" for x, y in numbers()]
    (folder / "others.csv").write_text("\n".join(lines) + "\n")
    found = linnet.Dataset.open(folder / "others.csv", apart, settings={"data.columns": "a,b"})[0]
    assert np.abs(np.mean([found.values(i) for i in range(len(found))])) < 0.2


def test_settings_of_files_are_refused_for_examples_in_memory():
    windows = linnet.Dataset.windows(values=numbers(), length=16)
    config = {"model": SIZES, "training": {"steps": 1, "batch": 2}}
    for key, value in [("horizon", 4), ("patch", 2), ("columns", "x"), ("split", "0.5")]:
        with pytest.raises(linnet.UsageError, match=f"data.{key} for examples in memory"):
            linnet.train(config, windows, settings={f"data.{key}": value})
    with pytest.warns(UserWarning, match="data.horizon, data.patch, data.columns_apart have no effect"):
        linnet.train("series", linnet.Dataset.windows(values=numbers(), length=200), settings=config)


def test_numbers_beyond_float32_are_refused():
    with pytest.raises(linnet.UsageError, match="in column 1, which it rounds by up to"):
        linnet.Dataset.windows(values=numbers() + [0, 1e10], length=16)
    with pytest.raises(linnet.UsageError, match="infinity"):
        linnet.Dataset.windows(values=numbers() * 1e39, length=16)
    assert linnet.Dataset.windows(values=numbers() + 1e5, length=16).columns == 2


def test_the_best_model_is_kept(folder):
    data = linnet.Dataset.windows(values=numbers(), length=16)
    config = {"model": SIZES, "training": {"steps": 6, "batch": 4, "evaluate_every": 2, "evaluate_examples": 1000}}
    result = linnet.train(config, data)
    bits = linnet.evaluate(result.best_model, data)["bits"]
    assert bits == pytest.approx(result.best_bits, rel=1e-6)
    assert result.best_bits == min(result.evaluation_bits)


def test_arrays_of_other_libraries_are_data():
    tokens = np.arange(600).reshape(30, 20) % 5
    config = {"model": SIZES, "training": {"steps": 2, "batch": 2}}
    expected = linnet.train(config, tokens).bits
    for data in (Table(range(20), tokens), memoryview(tokens)):
        np.testing.assert_array_equal(linnet.train(config, data).bits, expected)
