"""Which pooling and calibrator for this encoder and this text, or none: ``advise``, from labels or without any."""

from bertflow.advice.advising import advise
from bertflow.advice.candidates import Candidate
from bertflow.advice.result import Advice, Option
from bertflow.advice.rule import Gain

__all__ = ["Advice", "Candidate", "Gain", "Option", "advise"]
