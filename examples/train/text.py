"""Real text that is on every Debian machine: the licences that the base system ships."""

from pathlib import Path

import torch

LICENCES = Path("/usr/share/common-licenses")
FILES = ("GPL-2", "GPL-3", "LGPL-2.1", "LGPL-3", "Apache-2.0", "MPL-2.0", "GFDL-1.3", "Artistic")


def read(path=None):
    """The text at `path`, or the licences."""
    if path is not None:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    found = [LICENCES / name for name in FILES if (LICENCES / name).is_file()]
    if not found:
        raise SystemExit(f"train: no text: none of the usual licences lies in {LICENCES}; name a file with --text")
    return "\n\n".join(file.read_text(encoding="utf-8", errors="replace") for file in found)


class Samples:
    """Random pieces of the text; each rank draws its own, the same in every run."""

    def __init__(self, text, context, seed):
        letters = sorted(set(text))
        index = {letter: i for i, letter in enumerate(letters)}
        self.vocabulary = len(letters)
        self.tokens = torch.tensor([index[letter] for letter in text], dtype=torch.long)
        self.context = context
        self.random = torch.Generator().manual_seed(seed)
        if len(self.tokens) < context + 2:
            raise SystemExit(f"train: the text has {len(self.tokens)} characters, fewer than {context + 2}")

    def draw(self, batch):
        starts = torch.randint(len(self.tokens) - self.context - 1, (batch,), generator=self.random)
        pieces = torch.stack([self.tokens[start : start + self.context + 1] for start in starts.tolist()])
        return pieces[:, :-1], pieces[:, 1:]
