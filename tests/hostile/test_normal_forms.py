"""Ids are bytes: é as one character and as two are two documents, and a person who meets the wrong one is told."""

import json
import unicodedata

import pytest

from streamtopic.cli import main

NAME = "Zo\u00eb"
OTHER = unicodedata.normalize("NFD", NAME)


@pytest.fixture
def instance(tmp_path, capsys):
    """An instance that holds the composed form of an id."""
    lines = [
        {"id": NAME, "text": "apple banana cherry"},
        {"id": "d1", "text": "iron copper silver", "subjects": [NAME]},
    ]
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    assert main(["add", str(corpus), "--dir", str(tmp_path / "instance"), "--json"]) == 0
    capsys.readouterr()
    return tmp_path / "instance"


def test_a_delete_of_the_other_form_warns(instance, capsys):
    """It deletes nothing, says which id is there, in a way that shows the difference, and keeps the document."""
    assert main(["delete", OTHER, "--dir", str(instance), "--json"]) == 0
    err = capsys.readouterr().err
    assert "differs only in Unicode normal form" in err
    assert "Zo\\xeb" in err
    assert "Zoe\\u0308" in err
    assert main(["status", "--dir", str(instance), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["documents"] == 2


@pytest.mark.parametrize("name", [NAME, "d1", "nobody", "nobod\u00eb"])
def test_a_delete_of_an_id_that_is_there_or_of_none_at_all_does_not_warn(instance, capsys, name):
    """Only the other form is worth a word."""
    assert main(["delete", name, "--dir", str(instance), "--json"]) == 0
    assert "normal form" not in capsys.readouterr().err


@pytest.mark.parametrize(("name", "said"), [(OTHER, "Zo\\xeb"), ("nobody", "only documents that come"), (NAME, "")])
def test_to_forget_a_subject_that_no_document_has_warns(instance, capsys, name, said):
    """Its receipt would name no document, and look like a success; the other form of a subject is another subject."""
    assert main(["delete", "--subject", name, "--dir", str(instance), "--json"]) == 0
    err = capsys.readouterr().err
    assert said in err
    assert ("has the subject" in err) is bool(said)
    assert main(["status", "--dir", str(instance), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["documents"] == (2 if said else 1)
