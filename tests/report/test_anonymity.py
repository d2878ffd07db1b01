from bertflow.report.anonymity import hide_texts
from bertflow.report.page import render
from bertflow.report.verdict import Origin


def test_no_sentence_is_left_on_the_page(findings, tiny_spaces, page):
    hidden = render(hide_texts(findings), Origin())
    telling = [text for text in tiny_spaces.sentences if len(text.split()) > 4 and text in page]
    assert len(telling) > 20
    assert not [text for text in telling if text in hidden]


def test_a_text_has_one_number_everywhere(findings):
    hidden = hide_texts(findings)
    names = dict(zip(findings.sentences.labels, hidden.sentences.labels, strict=True))
    assert len(set(names.values())) == len(names)
    shown = [
        (one.text, other.text)
        for one, other in zip(findings.analysis.least_likely, hidden.analysis.least_likely, strict=True)
    ]
    assert shown
    assert all(names[text] == number for text, number in shown)
