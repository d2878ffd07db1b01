"""The paper's figures, Tables 2 to 5 and 8, as printed. Columns of Tables 2 and 3: ``SEVEN``."""

from __future__ import annotations

SEVEN = ("STS-B", "SICK-R", "STS12", "STS13", "STS14", "STS15", "STS16")

TABLE2 = {
    "Avg. GloVe": (58.02, 53.76, 55.14, 70.66, 59.73, 68.25, 63.66),
    "Avg. BERT (SBERT paper)": (46.35, 58.40, 38.78, 57.98, 57.98, 63.15, 61.06),
    "BERT CLS": (16.50, 42.63, 20.16, 30.01, 20.09, 36.88, 38.03),
    "BERT-base": (47.29, 58.21, 49.07, 55.92, 54.75, 62.75, 65.19),
    "BERT-base-last2avg": (59.04, 63.75, 57.84, 61.95, 62.48, 70.95, 69.81),
    "BERT-base-flow (NLI)": (58.56, 65.44, 59.54, 64.69, 64.66, 72.92, 71.84),
    "BERT-base-flow (target)": (70.72, 63.11, 63.48, 72.14, 68.42, 73.77, 75.37),
    "BERT-large": (46.99, 53.74, 46.89, 53.32, 49.27, 56.54, 61.63),
    "BERT-large-last2avg": (59.56, 60.22, 57.68, 61.37, 61.02, 68.04, 70.32),
    "BERT-large-flow (NLI)": (68.09, 64.62, 61.72, 66.05, 66.34, 74.87, 74.47),
    "BERT-large-flow (target)": (72.26, 62.50, 65.20, 73.39, 69.42, 74.92, 77.63),
}
TABLE3 = {
    "InferSent-GloVe": (68.03, 65.65, 52.86, 66.75, 62.15, 72.77, 66.86),
    "USE": (74.92, 76.69, 64.49, 67.80, 64.61, 76.83, 73.18),
    "SBERT-base-NLI": (77.03, 72.91, 70.97, 76.53, 73.19, 79.09, 74.30),
    "SBERT-large-NLI": (79.23, 73.75, 72.27, 78.46, 74.90, 80.99, 76.25),
    "SRoBERTa-base-NLI": (77.77, 74.46, 71.54, 72.49, 70.80, 78.74, 73.69),
    "SRoBERTa-large-NLI": (79.10, 74.29, 74.53, 77.00, 73.18, 81.85, 76.82),
    "BERT-base-NLI": (77.08, 72.62, 66.23, 70.22, 72.15, 77.35, 73.91),
    "BERT-base-NLI-last2avg": (78.03, 74.07, 68.37, 72.44, 73.98, 79.15, 75.39),
    "BERT-base-NLI-flow (NLI)": (79.10, 78.03, 67.75, 76.73, 75.53, 80.63, 77.58),
    "BERT-base-NLI-flow (target)": (81.03, 74.97, 68.95, 78.48, 77.62, 81.95, 78.94),
    "BERT-large-NLI": (77.80, 73.44, 66.87, 73.91, 74.04, 79.14, 75.35),
    "BERT-large-NLI-last2avg": (78.45, 74.93, 68.69, 75.63, 75.55, 80.35, 76.81),
    "BERT-large-NLI-flow (NLI)": (79.89, 77.73, 69.61, 79.45, 77.56, 82.48, 79.36),
    "BERT-large-NLI-flow (target)": (81.18, 74.52, 70.19, 80.27, 78.85, 82.97, 80.57),
}
TABLE4 = {
    "BERT-base-NLI-last2avg": 70.30,
    "BERT-base-NLI-flow (NLI)": 72.52,
    "BERT-base-NLI-flow (target)": 76.17,
    "BERT-large-NLI-last2avg": 70.41,
    "BERT-large-NLI-flow (NLI)": 74.19,
    "BERT-large-NLI-flow (target)": 77.09,
}
TABLE5 = {
    "none": 47.29,
    "sn": 55.46,
    "natsv-1": 51.79,
    "natsv-10": 60.40,
    "sn+natsv-1": 56.02,
    "sn+natsv-6": 63.51,
    "flow": 65.62,
}
#: mean and standard deviation over five seeds
TABLE8 = {
    "BERT-large-NLI": (77.26, 1.76),
    "BERT-large-NLI-last2avg": (78.07, 1.50),
    "BERT-large-NLI-last2avg + flow": (81.10, 0.55),
}
