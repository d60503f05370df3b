"""What the site needs beyond MkDocs: pages made from other files, links that leave `docs/`, and pictures inside the pages.

MkDocs calls the functions that begin with ``on_``; `mkdocs.yml` names this file.
"""

from __future__ import annotations

import posixpath
import re
import tomllib
from pathlib import Path
from typing import Any

from cli_reference import cli_reference
from field_tables import filled
from layers_picture import layers_picture
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page
from notebook_page import notebook_page

ROOT = Path(__file__).resolve().parents[2]
FROM_ROOT = {
    "SECURITY.md": "security.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "README.md": "index.md",
    "deploy/service.py": "examples/service.py",
}
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")
FENCED = re.compile(r"^(```.*?^```)", re.DOTALL | re.MULTILINE)
PICTURE = re.compile(r"!\[([^\]]*)\]\((pictures/[\w-]+\.svg)\)")
MERMAID = re.compile(r"```mermaid\n(.*?)```", re.DOTALL)
ROLE = re.compile(r":(?:class|func|meth|attr|data|mod|exc):<code>~?([\w.]+)</code>")


def slug(heading: str, separator: str = "-") -> str:
    """The anchor of a heading, as GitHub makes it: the pages are read there, too."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", separator)


def repository(root: Path = ROOT) -> str | None:
    """The address of the source on the web, if the project says it."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    urls = {name.lower(): address for name, address in project.get("urls", {}).items()}
    return urls.get("repository") or urls.get("source")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Anchors as on GitHub."""
    config.mdx_configs["toc"]["slugify"] = slug
    config.watch.append(str(ROOT / "vinelm"))
    return config


def decisions(folder: Path) -> str:
    """A list of the decisions with their titles, for the page about the architecture."""
    pages = sorted(folder.glob("*.md"))
    titles = [path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ") for path in pages]
    listed = [f"- [{title}](decisions/{path.name})" for path, title in zip(pages, titles, strict=True)]
    return "\n".join(["## Decisions", "", *listed, ""])


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what lies elsewhere: the pages of the repository's root, a file that readers save, and the notebooks.

    Of `docs/examples`, what a page links to is on the site; what the commands of that page write beside it is not.
    """
    pages = "".join(path.read_text(encoding="utf-8") for path in Path(config.docs_dir).rglob("*.md"))
    linked = set(re.findall(r"\]\((?:\.\./)*(examples/[^)#\s]+)", pages))
    for file in files:
        if file.src_uri in linked:
            file.inclusion = InclusionLevel.INCLUDED
    for name, page in FROM_ROOT.items():
        if page not in files.src_uris:
            text = (ROOT / name).read_text(encoding="utf-8")
            content = leaving_docs(text, "") if page.endswith(".md") else text
            inclusion = InclusionLevel.NOT_IN_NAV if page.endswith(".md") else InclusionLevel.INCLUDED
            files.append(File.generated(config, page, content=content, inclusion=inclusion))
    for notebook in sorted(Path(config.docs_dir).glob("notebooks/*.ipynb")):
        page = f"notebooks/{notebook.stem}.md"
        files.append(File.generated(config, page, content=notebook_page(notebook)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in what is generated, put pictures into the page, and redirect links to files outside of the site."""
    del files
    if page.file.inclusion.is_not_in_nav():
        page.meta["search"] = {"boost": 0.1}  # who searches for a word wants the page of the menu before the decision
    elif page.file.src_uri == "api.md":
        page.meta["search"] = {"boost": 0.3}  # its many docstrings have every word; a name that only it has is found anyway
    markdown = filled(markdown)
    if page.file.src_uri == "cli.md":
        markdown += "\n" + cli_reference()
    if page.file.src_uri == "architecture.md":
        markdown += "\n" + decisions(Path(config.docs_dir) / "decisions")
    markdown = MERMAID.sub(lambda found: layers_picture(found[1]), markdown)
    markdown = PICTURE.sub(lambda found: inline(Path(config.docs_dir) / found[2], found[1]), markdown)
    return leaving_docs(markdown, posixpath.join("docs", posixpath.dirname(page.file.src_uri)))


def on_page_content(html: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Docstrings name things by reStructuredText's roles: show the name, with a link where the page describes it."""
    del page, config, files
    anchors = {anchor.rpartition(".")[2]: anchor for anchor in re.findall(r'<h3 id="(vinelm\.\w+)"', html)}

    def named(found: re.Match[str]) -> str:
        name = found[1].rpartition(".")[2] if found[0].partition("<code>")[2].startswith("~") else found[1]
        anchor = anchors.get(found[1].rpartition(".")[2])
        return f'<a href="#{anchor}"><code>{name}</code></a>' if anchor else f"<code>{name}</code>"

    return ROLE.sub(named, html)


def leaving_docs(text: str, folder: str) -> str:
    """Redirect each link that leaves `docs/`: to the page made from that file, to the source on the web, or to nowhere."""

    def redirected(found: re.Match[str]) -> str:
        label, link = found.groups()
        target, _, anchor = link.partition("#")
        path = posixpath.normpath(posixpath.join(folder, target))
        if not target or ":" in link:
            return found[0]
        if path in FROM_ROOT:
            target = FROM_ROOT[path]
        elif folder == "" and path.startswith("docs/"):
            target = path.removeprefix("docs/")
        elif path.endswith(".ipynb"):
            return f"[{label}]({target.removesuffix('.ipynb')}.md)"
        elif path.startswith("docs/"):
            return found[0]
        elif address := repository():
            return f"[{label}]({address}/blob/main/{path})"
        else:
            return label
        here = posixpath.relpath(target, (folder.removeprefix("docs").strip("/")) or ".")
        return f"[{label}]({here}{'#' + anchor if anchor else ''})"

    pieces = FENCED.split(text)
    return "".join(piece if piece.startswith("```") else LINK.sub(redirected, piece) for piece in pieces)


def inline(path: Path, description: str) -> str:
    """The drawing itself, so that it follows the theme: its own colours are for readers of the file."""
    drawing: Any = re.sub(r"<style>.*?</style>\n?", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    drawing = re.sub(r"\n\s*", "", drawing[drawing.index("<svg") :])
    return f'<figure class="drawing" markdown="0">{drawing}<figcaption>{description}</figcaption></figure>'
