"""A person in the demo: who it is, and the receipt that covers the documents."""

import json
from dataclasses import replace

import pytest

from streamtopic.commands.forgotten_person import (
    MADE_UP,
    chosen_person,
    covering_receipt,
    describe,
    with_made_up_person,
)
from streamtopic.documents.corpus import Corpus, Document
from streamtopic.service.app import Service
from streamtopic.settings import Settings

DEMO = ("demo", "--topics", 4, "--set", "max_df=1", "--documents")
NAMED = 7


@pytest.fixture(scope="module")
def people_file(sample, tmp_path_factory):
    """The sample with two people: one has seven documents, the other eighty."""
    path = tmp_path_factory.mktemp("people") / "people.jsonl"
    documents = [json.loads(line) for line in sample[:600]]
    for number, document in enumerate(documents):
        if number < NAMED:
            document["subjects"] = ["customer \x1b[31m 7"]
        elif number < 87:
            document["subjects"] = ["customer 80"]
    path.write_text("\n".join(map(json.dumps, documents)) + "\n", encoding="utf-8")
    return path


def test_the_demo_forgets_a_person_with_the_first_documents(program, people_file):
    """One update leaves out the person and the first documents, its twin agrees, and one receipt covers the person."""
    status, out, err = program(*DEMO, people_file, "--delete", 5, "--json")
    assert status == 0, err
    found = json.loads(out)
    person = found["person"]
    assert (person["documents"], person["version"], person["made_up"]) == (NAMED, 2, False)
    assert person["problem"] is None
    assert person["receipt"]
    assert found["steps"][0]["documents"] == 5 + NAMED
    assert found["versions"][1]["documents"] == 600 - 5 - NAMED
    assert found["twin"]["words_equal"] is True
    assert found["twin"]["max_abs_difference"] <= 1e-12
    assert found["receipts"]["count"] == found["deleted"]
    assert not {f"doc-{number}" for number in range(NAMED)} & set(found["examples"])


def test_the_line_about_a_person_is_shown(program, people_file):
    """A reader sees the request and its receipt, and a name cannot steer the terminal."""
    status, out, err = program(*DEMO, people_file, "--delete", 5)
    assert status == 0, err
    line = next(line for line in out.splitlines() if line.startswith("customer"))
    assert "\x1b" not in line
    assert "one request forgot 7 documents, and one receipt of version 2 covers them all" in line
    assert "made up" not in line


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "nothing deleted"])
def test_nobody_is_forgotten_where_it_was_not_asked_for(program, people_file, tmp_path, kept):
    """An instance that stays keeps its people, and without any deletion nobody leaves."""
    arguments = ["--delete", 2, "--keep", tmp_path / "kept"] if kept else ["--delete", 0]
    status, out, err = program(*DEMO, people_file, *arguments, "--json")
    assert status == 0, err
    found = json.loads(out)
    assert (found["person"], found["deleted"]) == (None, 2 if kept else 0)


def test_a_made_up_person_has_the_docstrings_of_one_place():
    """A handful gets the subject, all of one module; a corpus without such a module stays as it is."""
    sizes = {"one": 1, "some.module": 5, "large": 40}
    documents = [Document(f"{place}.f{number}", "text") for place, size in sizes.items() for number in range(size)]
    corpus = Corpus("docstrings", documents)
    named = [document.id for document in with_made_up_person(corpus).documents if document.subjects == (MADE_UP,)]
    assert named == [f"some.module.f{number}" for number in range(5)]
    without = replace(corpus, documents=documents[6:])
    assert with_made_up_person(without) == without


def test_a_person_whose_documents_are_most_of_the_corpus_is_left_out():
    """What is left must be able to teach a model."""
    documents = [Document(str(number), "text", subjects=("a",) if number < 4 else ()) for number in range(10)]
    assert chosen_person(documents, 2) is None
    person = chosen_person(documents, 1)
    assert [document.id for document in person.documents] == ["0", "1", "2", "3"]
    assert chosen_person(documents[4:], 1) is None


def test_a_receipt_that_does_not_cover_the_person_is_reported(sample, tmp_path):
    """Another version, another number of documents and a missing receipt are problems, and the line names them."""
    texts = [json.loads(line) for line in sample[:600]]
    documents = [Document(one["id"], one["text"], subjects=("a",) if k < 3 else ()) for k, one in enumerate(texts)]
    settings = Settings.model_validate({"topics": 4, "max_df": 1.0, "dir": tmp_path, "max_forget_lag": 0.0})
    with Service(settings, kept=False) as service:
        service.add(documents)
        service.settle()
        person = chosen_person(documents, 1)
        request = service.delete_subjects(["a"])[0]
        missing = covering_receipt(service, person, request, 2)
        service.settle()
        sound = covering_receipt(service, person, request, 2)
        wrong_version = covering_receipt(service, person, request, 1)
        wrong_number = covering_receipt(service, replace(person, documents=person.documents[:2]), request, 2)
    assert sound["problem"] is None
    assert "no receipt covers" in describe(missing)
    assert "names version 2" in describe(wrong_version)
    assert "covers 3 documents" in describe(wrong_number)
