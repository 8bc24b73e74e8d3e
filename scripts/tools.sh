#!/usr/bin/env bash
# Checks for the tools that building (`build`), linting (`lint`), testing (`test`), testing in virtual machines
# (`test-vm`) and packing a static program (`package-static`) take. Installs what is missing where it can (Rust by rustup, Debian packages as root, csi-sanity and CNI plugins into .tools); otherwise names the
# line that installs it. Rust comes first: without it nothing else is installed. Touches no network when nothing is
# missing.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo_bin=${CARGO_HOME:-${HOME:-}/.cargo}/bin
export PATH="$PWD/.tools/node/bin:$PATH:$cargo_bin:/usr/local/go/bin:/usr/sbin:/sbin"

cni_plugins_version=v1.9.1
csi_sanity_package=github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity@v5.4.0

say() { printf '%s\n' "$*" >&2; }
die() {
    say "tools: $1"
    shift
    for line in "$@"; do say "    $line"; done
    exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }
# at_least WANTED FOUND
at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }

# packages NAME... : installs Debian packages, or says how.
packages() {
    if [ "$(id -u)" -eq 0 ] && have apt-get; then
        say "tools: installing $*"
        if ! DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" >&2; then
            apt-get update -q >&2
            DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" >&2
        fi
    else
        die "missing packages, here by their names in Debian: $*" \
            "sudo apt-get install --no-install-recommends $*"
    fi
}

# need_packages COMMAND=PACKAGE... : installs the packages of all commands that are missing, at once.
need_packages() {
    local pair missing=()
    for pair in "$@"; do
        have "${pair%%=*}" || missing+=("${pair#*=}")
    done
    if [ "${#missing[@]}" -gt 0 ]; then packages "${missing[@]}"; fi
}

rust_command="curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh"

# fetch URL FILE : downloads a file over TLS.
fetch() {
    if have curl; then
        curl --proto '=https' --tlsv1.2 -sSf --max-time 120 -o "$2" "$1"
    elif have wget; then
        wget -q --https-only --timeout=120 -O "$2" "$1"
    else
        return 1
    fi
}

# install_rust : installs the toolchain: by the rustup that is there, by Debian's rustup, or by rustup's own
# installer, into the home directory. Fails if none of them can be had.
install_rust() {
    local installer
    if ! have rustup && [ "$(id -u)" -eq 0 ] && have apt-get && apt-cache show rustup >/dev/null 2>&1; then
        DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends rustup >&2 || true
    fi
    if have rustup; then
        rustup toolchain install stable --profile minimal >&2 && rustup default stable >&2
        return
    fi
    installer=$(mktemp)
    if fetch https://sh.rustup.rs "$installer" && sh "$installer" -y --profile minimal --no-modify-path >&2; then
        rm -f "$installer"
        return 0
    fi
    rm -f "$installer"
    return 1
}

rust() {
    local wanted found
    wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
    if ! have cargo; then
        say "tools: Rust is missing: installing it by rustup"
        install_rust || die "Rust cannot be installed from here; Rust $wanted or newer is needed:" "$rust_command"
        hash -r
        have cargo || die "Rust was installed, but cargo is not in $cargo_bin; this installs it there:" "$rust_command"
    fi
    found=$(cargo --version | awk '{ print $2 }')
    if ! at_least "$wanted" "$found"; then
        if have rustup; then
            die "cargo is $found, but Rust $wanted or newer is needed:" "rustup update stable"
        fi
        die "cargo is $found, but Rust $wanted or newer is needed, in $cargo_bin and first in PATH:" "$rust_command"
    fi
}

build() {
    rust
    need_packages cc=build-essential mount=mount losetup=mount mkfs.ext4=e2fsprogs mkfs.xfs=xfsprogs fsfreeze=util-linux
}

lint() {
    rust
    local component
    for component in rustfmt clippy; do
        if ! cargo "${component/rustfmt/fmt}" --version >/dev/null 2>&1; then
            if have rustup; then
                rustup component add "$component" >&2
            else
                die "cargo has no $component:" "rustup component add $component"
            fi
        fi
    done
}

sanity() {
    local installed=$PWD/.tools/bin/csi-sanity
    if [ -x "${CSI_SANITY:-$installed}" ]; then return; fi
    if [ "${CSI_SANITY:-$installed}" != "$installed" ]; then
        die "CSI_SANITY names $CSI_SANITY, which is no program"
    fi
    need_packages go=golang-go
    say "tools: installing csi-sanity into .tools/bin"
    if ! GOBIN="$PWD/.tools/bin" GOTOOLCHAIN="${GOTOOLCHAIN:-auto}" go install "$csi_sanity_package" >&2; then
        die "csi-sanity could not be built by $(go version); with Go 1.21 or newer (https://go.dev/dl) this does it:" \
            "GOBIN=$PWD/.tools/bin go install $csi_sanity_package"
    fi
}

# cni : the reference plugins of CNI. Without the version at link time they print none.
cni() {
    local installed=$PWD/.tools/cni plugins=github.com/containernetworking/plugins
    if [ -x "${CNI_PLUGINS:-$installed}/portmap" ]; then return; fi
    if [ "${CNI_PLUGINS:-$installed}" != "$installed" ]; then
        die "CNI_PLUGINS names $CNI_PLUGINS, which has no plugin portmap"
    fi
    need_packages go=golang-go
    say "tools: installing the reference plugins of CNI into .tools/cni"
    local name packages=()
    for name in main/bridge main/loopback meta/firewall meta/portmap ipam/host-local; do
        packages+=("$plugins/plugins/$name@$cni_plugins_version")
    done
    if ! GOBIN="$installed" GOTOOLCHAIN="${GOTOOLCHAIN:-auto}" go install \
        -ldflags "-s -w -X $plugins/pkg/utils/buildversion.BuildVersion=$cni_plugins_version" "${packages[@]}" >&2; then
        die "the reference plugins of CNI could not be built by $(go version): Go 1.24 or newer is at https://go.dev/dl"
    fi
}

tests() {
    if [ "$(id -u)" -ne 0 ]; then
        # shellcheck disable=SC2016 # $PATH is for the reader's shell
        die "the tests start agents, which mount: run them as root, for example with" \
            'sudo --preserve-env=HOME env "PATH=$PATH" make test'
    fi
    build
    # Hosts of tests are network namespaces, one of them behind NAT.
    need_packages ip=iproute2 nft=nftables iptables-legacy=iptables dockerd=docker.io docker=docker.io \
        podman=podman docker-registry=docker-registry
    # The drivers java and qemu run the real programs.
    need_packages java=default-jre-headless qemu-system-x86_64=qemu-system-x86
    # Published clients of other languages are taken through a session.
    need_packages python3=python3 go=golang-go
    python3 -c "import venv, ensurepip" 2>/dev/null || die "python3 has no venv:" "apt-get install python3-venv"
    machines
    sanity
    cni
    ui
    # The web page is tested in a real browser.
    need_packages chromium=chromium
}

# ui : what building and testing the web page takes: Node, by the archive of its publisher where Debian's is older.
node_version=20.20.2
ui() {
    local wanted=20.19.0 architecture
    if have node && have npm && at_least "$wanted" "$(node --version | tr -d v)"; then return; fi
    case "$(uname -m)" in
    x86_64) architecture=x64 ;;
    aarch64) architecture=arm64 ;;
    *) die "Node $wanted or newer is needed for the web page, see https://nodejs.org" ;;
    esac
    say "tools: installing Node $node_version into .tools/node"
    local name=node-v$node_version-linux-$architecture archive
    archive=$(mktemp)
    if ! fetch "https://nodejs.org/dist/v$node_version/$name.tar.gz" "$archive"; then
        rm -f "$archive"
        die "Node $wanted or newer is needed for the web page, and could not be downloaded, see https://nodejs.org"
    fi
    mkdir -p .tools/node
    tar -xzf "$archive" -C .tools/node --strip-components=1
    rm -f "$archive"
}

# What virtual machines take. Their kernel is a package that the tests download themselves.
machines() {
    need_packages qemu-system-x86_64=qemu-system-x86 qemu-img=qemu-utils busybox=busybox-static cpio=cpio \
        strip=binutils mkfs.ext4=e2fsprogs losetup=mount blkid=util-linux mkfs.xfs=xfsprogs
}

for what in "$@"; do
    case $what in
    build) build ;;
    lint) lint ;;
    test) tests ;;
    ui) ui ;;
    test-vm)
        build
        machines
        # Roots with systemd.
        need_packages mmdebstrap=mmdebstrap
        ;;
    package-static)
        build
        # The C code of two crates is compiled for musl.
        need_packages musl-gcc=musl-tools
        if have rustup; then rustup target add "$(uname -m)-unknown-linux-musl" >&2; fi
        ;;
    *) die "no such set of tools: $what (build, lint, test, test-vm, package-static, ui)" ;;
    esac
done
