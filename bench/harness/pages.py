"""Tables in pages: between a pair of markers, the text is what a command printed, and is written by it again."""

from pathlib import Path

from .stage import Failure


def markers(name):
    return f"<!-- begin: {name} -->", f"<!-- end: {name} -->"


def filled(page, parts):
    """`page` with every part ({name: text}) for which it has markers; the number of them."""
    count = 0
    for name, text in parts.items():
        begin, end = markers(name)
        if begin not in page:
            continue
        before, rest = page.split(begin, 1)
        if end not in rest:
            raise Failure(f"there is '{begin}', but no '{end}' behind it")
        page = f"{before}{begin}\n{text.strip()}\n{end}{rest.split(end, 1)[1]}"
        count += 1
    return page, count


def fill(paths, parts):
    for path in map(Path, paths):
        try:
            page, count = filled(path.read_text(), parts)
            if count == 0:
                raise Failure(f"it has no marker such as '{markers(next(iter(parts)))[0]}'")
            path.write_text(page)
        except OSError as error:
            raise Failure(f"{path}: {error.strerror}") from error
        except Failure as failure:
            raise Failure(f"{path}: {failure}") from failure
