#!/bin/sh
# Build or update the virtual environment given as $1 from requirements.lock, then install the project into it.
# Everything that is installed is pinned with hashes, the installer (uv) and the build backend too.
set -eu
venv=$1

usable() {
    "$1" -c 'import sys, ensurepip, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null
}

if ! [ -x "$venv/bin/python" ] || ! usable "$venv/bin/python"; then
    found=
    for candidate in ${PYTHON:-} python3 python3.12 python3.11 /usr/bin/python3; do
        if usable "$candidate"; then
            found=$candidate
            break
        fi
    done
    if [ -z "$found" ]; then
        echo "setup: no Python 3.11 or 3.12 with the venv module was found" >&2
        echo "    install one (on Debian and Ubuntu: python3 and python3-venv)," >&2
        echo "    or name one: make PYTHON=/path/to/python3.12 ..." >&2
        exit 3
    fi
    echo "setup: making $venv with $("$found" --version)"
    rm -rf "$venv"
    "$found" -m venv "$venv"
fi

python=$venv/bin/python
pinned() { # the lines of requirements.lock about package $1
    sed -n "/^$1==/,/^[^ ]/{/^$1==/p;/^    --hash/p;}" requirements.lock
}

if ! [ -x "$venv/bin/uv" ]; then
    "$python" -m pip --version >/dev/null 2>&1 || "$python" -m ensurepip >/dev/null
    pinned uv >"$venv/uv.lock"
    "$python" -m pip install --quiet --disable-pip-version-check --require-hashes -r "$venv/uv.lock" ||
        echo "setup: uv could not be installed; going on with pip, which takes minutes" >&2
fi

echo "setup: installing the locked requirements"
if [ -x "$venv/bin/uv" ]; then
    VIRTUAL_ENV=$(cd "$venv" && pwd)
    export VIRTUAL_ENV
    "$venv/bin/uv" pip install --quiet --no-deps --require-hashes -r requirements.lock
    "$venv/bin/uv" pip install --quiet --no-deps --no-build-isolation -e .
else
    "$python" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
    "$python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
fi

# Importing these takes seconds without compiled bytecode, and containers often forbid writing it later.
packages=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo "setup: compiling to bytecode"
for name in jax jaxlib jaxopt vizier tensorflow_probability equinox flax optax chex numpy scipy pandas pyarrow \
    google grpc pydantic rich typer click yaml dynamo aisimulate aisimulate_core statsmodels pmdarima prophet; do
    [ -d "$packages/$name" ] && printf '%s\n' "$packages/$name"
done | xargs "$python" -m compileall -q -j 0 src >/dev/null || true
