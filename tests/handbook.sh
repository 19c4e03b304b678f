#!/usr/bin/env bash
# Builds the handbook as HTML. Fails if mdBook complains, or if a link in the HTML has no target.
# Usage: tests/handbook.sh MDBOOK FOLDER
set -euo pipefail
mdbook=$(realpath "$1")
out=$(realpath -m "$2")
cd "$(dirname "$0")/.."
rm -rf "$out"
said=$("$mdbook" build packaging/handbook -d "$out" 2>&1) || { echo "$said" >&2 && exit 1; }
if grep -E 'ERROR|WARN' <<<"$said"; then exit 1; fi
rm -f "$out"/.nojekyll "$out/404.html" # for web servers
python3 - "$out" <<'PY'
import html.parser
import sys
from pathlib import Path
from urllib.parse import unquote, urldefrag


class Page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.links, self.names = [], set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.names.update(name for name in [attributes.get("id")] if name)
        self.links += [attributes[key] for key in ("href", "src") if attributes.get(key)]


out = Path(sys.argv[1])
pages = {path: Page(path) for path in out.rglob("*.html")}
broken, seen = [], 0
for path, page in pages.items():
    for link in page.links:
        file, anchor = urldefrag(link)
        if ":" in file:
            continue
        seen += 1
        target = (path.parent / unquote(file)).resolve() if file else path
        if not target.exists() or (anchor and target in pages and unquote(anchor) not in pages[target].names):
            broken.append(f"{path.relative_to(out)}: {link}")
if broken or seen < 100:
    sys.exit("\n".join(broken) or f"only {seen} links")
PY
