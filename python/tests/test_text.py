import json
import subprocess

import numpy as np
import pytest
from support import sentencepiece_model, tiny

import linnet

TEXT = "so é 😀 it is, \ufffd!\n" * 90
PIECES = ["so", " it", " is", " ", "\n", "!", ","]
FIRST = 257  # of the pieces


@pytest.fixture
def pieces(tmp_path):
    """The file of a tokenizer."""
    path = tmp_path / "pieces.model"
    path.write_bytes(sentencepiece_model(PIECES))
    return path


@pytest.fixture
def writer(pieces):
    """A model of text with a tokenizer."""
    return linnet.train(
        tiny(training__steps=60, model__vocabulary=264, model__positions="rotary"),
        linnet.Dataset.text(TEXT, 24, linnet.Tokenizer(pieces)),
    ).model


@pytest.fixture
def byte_writer():
    return linnet.random_model(tiny(model__vocabulary=256, model__positions="rotary"))


def streamed(stream, tokens):
    return [stream.add(token) for token in tokens] + [stream.finish()]


def test_tokens_of_text_and_text_of_tokens(pieces):
    tokenizer = linnet.Tokenizer(pieces)
    assert tokenizer.vocabulary == 264
    tokens = tokenizer.encode("so it\n")
    assert tokens.dtype == np.int32 and list(tokens) == [FIRST, FIRST + 1, FIRST + 4]
    assert np.array_equal(tokenizer.encode("é".encode()), tokenizer.encode("é"))
    for text in ("", TEXT, "\0Ж"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.decode([FIRST, 1 + 0xC3]) == "so\ufffd"


def test_a_stream_gives_whole_characters(pieces, byte_writer):
    for tokenizer in (linnet.Tokenizer(pieces), byte_writer.tokenizer):
        tokens = tokenizer.encode("é\ufffd😀")
        assert streamed(linnet.TextStream(tokenizer), tokens) == ["", "é", "", "", "\ufffd", "", "", "", "😀", ""]
        noise = np.random.default_rng(3).integers(tokenizer.vocabulary, size=400)
        stream, text = linnet.TextStream(tokenizer), ""
        for token in noise:
            text += stream.add(token)
            stream = linnet.TextStream(tokenizer, stream.context())
        assert text + stream.finish() == tokenizer.decode(noise)


def test_a_model_takes_and_gives_text(writer):
    known = writer.tokenizer.encode("so é")
    assert np.array_equal(writer.score("so é"), writer.score(known))
    assert np.array_equal(writer.logits("so é"), writer.logits(known))
    assert np.array_equal(writer.hidden("so é"), writer.hidden(known))
    tokens = writer.generate_tokens(2, prompt="so é", length=30, seed=4)
    texts = writer.generate(2, prompt="so é", length=30, seed=4)
    assert texts == [writer.tokenizer.decode(row) for row in tokens]
    assert writer.generate(prompt=known, length=30, seed=4) == texts[0] and texts[0].startswith("so é")
    session = writer.session()
    session.begin(seed=4)
    session.prefill(0, "so é")
    drawn = [session.step()[0] for _ in range(30)]
    assert "so é" + "".join(streamed(writer.text_stream("so é"), drawn)) == texts[0]


def test_the_tokenizer_stays_with_the_model(writer, pieces, tmp_path):
    writer.save(tmp_path / "model")
    assert (tmp_path / "model/tokenizer.model").read_bytes() == pieces.read_bytes()
    loaded = linnet.load(tmp_path / "model")
    assert loaded.generate(prompt="so", length=9, seed=1) == writer.generate(prompt="so", length=9, seed=1)


def test_a_prompt_stays_as_it_was_given(tmp_path):
    """A tokenizer of the default settings begins every text with a blank, which the text behind a prompt keeps."""
    path = tmp_path / "blank.model"
    path.write_bytes(sentencepiece_model(PIECES, blank_before=True))
    data = linnet.Dataset.text(TEXT, 24, linnet.Tokenizer(path))
    model = linnet.train(tiny(training__steps=1, model__vocabulary=264), data).model
    assert list(model.tokenizer.encode("it is")) == [FIRST + 1, FIRST + 2]
    prompt = "  it  is"
    assert model.generate(prompt=prompt, length=5).startswith(prompt)
    assert streamed(model.text_stream("it"), [FIRST + 2]) == [" is", ""]
    assert streamed(model.text_stream(), [FIRST + 2]) == ["is", ""]


def test_files_go_through_the_tokenizer(pieces, tmp_path):
    book = tmp_path / "book.txt"
    book.write_text(TEXT)
    config = tiny(training__steps=2, model__vocabulary=264, data__length=24, data__tokenizer=str(pieces))
    model = linnet.train(config, book).model
    training, validation = linnet.Dataset.open(book, model)
    assert training.vocabulary == 264
    assert np.array_equal(training[3], model.tokenizer.encode(TEXT)[3:27])
    assert linnet.evaluate(model, book)["bits"] == linnet.evaluate(model, validation)["bits"]
    whole = linnet.Dataset.open(book, model, split="test")
    assert linnet.evaluate(model, whole)["tokens"] == len(model.tokenizer.encode(TEXT))
    other = tmp_path / "other.model"
    other.write_bytes(sentencepiece_model([*PIECES[1:], "é"]))
    with pytest.raises(linnet.UsageError, match="through another one"):
        linnet.evaluate(model, linnet.Dataset.text(TEXT, 24, linnet.Tokenizer(other)))


def test_the_program_reads_and_writes_the_same(writer, program, tmp_path):
    writer.save(tmp_path / "model")
    book = tmp_path / "book.txt"
    book.write_text(TEXT)

    def result_of(*arguments):
        return json.loads(subprocess.run([program, *arguments, "--json"], check=True, capture_output=True).stdout)

    printed = result_of("generate", tmp_path / "model", "--prompt", "so é", "--length", "40", "--seed", "7")
    assert writer.generate(prompt="so é", length=40, seed=7) == printed["results"][0]["text"]
    found = result_of("evaluate", tmp_path / "model", "--data", book)
    assert linnet.evaluate(writer, book)["tokens"] == found["tokens"]


def test_models_of_other_tokens_have_no_text(digits):
    assert digits.tokenizer is None
    grey = linnet.random_model(tiny(model__vocabulary=256, image__height=4, image__width=6))
    assert grey.tokenizer is None
    for model in (digits, grey):
        for call in (lambda m: m.score("text"), lambda m: m.text_stream(), lambda m: m.session().prefill(0, "text")):
            with pytest.raises(linnet.UsageError, match="expected .* got "):
                call(model)


REFUSED = {
    "a file that is none": (lambda m: linnet.Tokenizer(__file__), linnet.Error, "a model of SentencePiece, got another file"),
    "a path": (lambda m: linnet.Tokenizer(3), linnet.ArgumentTypeError, "a path, got int"),
    "text of numbers": (lambda m: m.tokenizer.encode(3), linnet.ArgumentTypeError, "text or bytes, got int"),
    "half a surrogate pair": (lambda m: m.tokenizer.encode("\ud800"), linnet.UsageError, "got half a surrogate pair"),
    "tokens beyond": (lambda m: m.tokenizer.decode([256]), linnet.UsageError, "tokens in 0 … 255, got 256"),
    "tokens' shape": (lambda m: m.tokenizer.decode([[1]]), linnet.UsageError, "tokens [n], got [1, 1]"),
    "a token beyond": (lambda m: m.text_stream().add(-1), linnet.UsageError, "tokens in 0 … 255, got -1"),
    "a huge token": (lambda m: m.text_stream().add(2**40), linnet.UsageError, "got 1099511627776"),
    "a token's type": (lambda m: m.text_stream().add(1.5), linnet.ArgumentTypeError, "whole numbers, got float64"),
    "a stream's tokenizer": (lambda m: linnet.TextStream(m), linnet.ArgumentTypeError, "a linnet.Tokenizer, got Model"),
    "a text's tokenizer": (
        lambda m: linnet.Dataset.text("text", 3, "a.model"),
        linnet.ArgumentTypeError,
        "a linnet.Tokenizer, got str",
    ),
    "a text's length": (
        lambda m: linnet.Dataset.text("text", 9, m.tokenizer),
        linnet.UsageError,
        "1 ... 4, the tokens of the text, got 9",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refuses(case, byte_writer):
    call, error, words = REFUSED[case]
    with pytest.raises(error) as found:
        call(byte_writer)
    assert words in str(found.value) and str(found.value).startswith("[")
