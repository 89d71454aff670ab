#!/usr/bin/env bash
# setup.sh [--where]: builds what a guest of the bed boots, once.
#
# That is a stock Debian kernel, an initramfs that mounts the host's root
# read-only over 9p, and two modules built here against that kernel's headers:
#   siw       Soft-iWARP, which Debian leaves out of its kernel, with a fault mended and
#             one thing heeded, see siw_listener.sh and siw_tos.sh
#   rdma_rxe  Soft-RoCE (RoCEv2) with dma-buf registration added and a fault mended,
#             see rxe_dmabuf.c and rxe_gsi.sh
# and libibverbs-dmabuf.so, see ibverbs_dmabuf.c.
#
# Nothing of the kernel is installed on the host: packages are unpacked under
# $BED_HOME (default ~/.cache/gdrcp-bed), in a folder named by a hash of the
# scripts here, so that a change of theirs builds anew. Takes about a minute and
# 700 MB while it builds, 30 MB after; a second call returns at once. Calls may
# overlap: one builds, the others wait. A call that was killed leaves nothing
# that a later one would take for finished.
#
# --where prints the folder, built or not, and does nothing else.
# Needs Debian 12 on x86_64 with apt; installs packages as root or by sudo.
# Exit status: 0 ready, 2 not that system, 1 anything else.
set -euo pipefail
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
cache=${BED_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/gdrcp-bed}
key=$(cd "$here" && cat setup.sh init hook.sh siw_listener.sh siw_tos.sh rxe_gsi.sh rxe_dmabuf.sh rxe_dmabuf.c ibverbs_dmabuf.c ibverbs_dmabuf.map | sha256sum | cut -c1-12)
home=$cache/$key
kernel=6.12

check_system() {
  local name=unknown id='' version=''
  if [ -r /etc/os-release ]; then
    # shellcheck source=/dev/null
    read -r id version name < <(. /etc/os-release && echo "${ID:-?}" "${VERSION_ID:-?}" "${PRETTY_NAME:-unknown}")
  fi
  if [ "$id-$version" != debian-12 ] || [ "$(uname -m)" != x86_64 ] || ! command -v apt-get >/dev/null; then
    echo "bed: needs Debian 12 on x86_64 with apt (the guest boots that kernel on this system's programs); this is $name on $(uname -m)" >&2
    exit 2
  fi
}

# fetch_kernel unpacks the newest kernel image and its headers under root/,
# and the sources of siw and rxe, and sets $release.
fetch_kernel() {
  local image version d
  image=$(apt-cache depends "linux-image-$kernel-amd64" 2>/dev/null | awk '/Depends: linux-image/{print $2; exit}')
  if [ -z "$image" ]; then
    echo "bed: apt offers no linux-image-$kernel-amd64: bookworm-security is missing in its sources, or run apt-get update" >&2
    exit 1
  fi
  release=${image#linux-image-}
  version=$(apt-cache policy "$image" | awk '/Candidate/{print $2}')
  mkdir -p deb root
  (cd deb && apt-get download -qq -o APT::Sandbox::User="$(id -un)" "$image=$version" "linux-headers-$release=$version" \
    "linux-headers-${release%-amd64}-common=$version" "linux-kbuild-${release%-amd64}=$version" "linux-source-$kernel=$version")
  for d in deb/linux-image* deb/linux-headers* deb/linux-kbuild*; do dpkg -x "$d" root; done
  mkdir -p root/lib/modules
  dpkg-deb --fsys-tarfile deb/linux-source-*.deb | tar -xO --wildcards "*/linux-source-$kernel.tar.xz" |
    tar -xJ --wildcards --strip-components=4 '*/drivers/infiniband/sw/siw' '*/drivers/infiniband/sw/rxe'
  rm -rf deb
}

# build_modules compiles siw and rxe. The headers' Makefile names /usr/src
# absolutely, and their links lead to /usr/lib: both are turned to root/.
build_modules() {
  local headers=$PWD/root/usr/src/linux-headers-$release link m
  "$here/rxe_dmabuf.sh" rxe
  "$here/rxe_gsi.sh" rxe
  "$here/siw_listener.sh" siw
  "$here/siw_tos.sh" siw
  grep -rlZ '/usr/src/linux-headers' "$headers" --include=Makefile --include='*.mk' |
    xargs -0r sed -i "s#/usr/src/linux-headers#$PWD/root/usr/src/linux-headers#g"
  for link in "$headers"/scripts "$headers"/tools; do
    [ -L "$link" ] && ln -sfn "$PWD/root/usr/lib/linux-kbuild-${release%-amd64}/$(basename "$link")" "$link"
  done
  for m in siw rxe; do
    if ! make -s -j"$(nproc)" -C "$headers" M="$PWD/$m" CONFIG_RDMA_SIW=m CONFIG_RDMA_RXE=m modules >"$m.log" 2>&1; then
      tail -n 20 "$m.log" >&2
      echo "bed: cannot build the module $m for $release" >&2
      exit 1
    fi
  done
  strip --strip-debug siw/siw.ko rxe/rdma_rxe.ko
}

# pack_initrd makes initrd.gz: busybox, init, and the modules with what they
# depend on, in the order in which they are loaded.
pack_initrd() {
  local f b m
  mkdir -p ird/{bin,modules,proc,sys,dev,root}
  cp /bin/busybox ird/bin/
  install -m 755 "$here/init" ird/init
  depmod -b "$PWD/root" "$release" 2>/dev/null || true # the stock tree names a few absent files
  for m in 9p 9pnet_virtio virtio_net virtio_blk veth crc32_generic crc32c_generic libcrc32c sch_netem sch_tbf sch_ingress cls_u32 act_gact \
    dm_mod dm_flakey dm_delay loop xfs overlay fuse rdma_rxe ib_uverbs rdma_ucm rdma_cm ib_umad; do
    modprobe -d "$PWD/root" -S "$release" --show-depends "$m" 2>/dev/null | awk '/^insmod/{print $2}'
  done | awk '!seen[$0]++' >modules.list
  while read -r f; do
    b=$(basename "$f" .xz)
    case $f in *.xz) xz -dc "$f" >"ird/modules/$b" ;; *) cp "$f" "ird/modules/$b" ;; esac
    echo "$b" >>ird/modules.order
  done <modules.list
  cp siw/siw.ko rxe/rdma_rxe.ko ird/modules/ # rxe's own takes the stock one's place
  echo siw.ko >>ird/modules.order
  (cd ird && find . | cpio -o -H newc 2>/dev/null | gzip -1) >initrd.gz
}

build() {
  fetch_kernel
  build_modules
  pack_initrd
  cp "root/boot/vmlinuz-$release" vmlinuz
  gcc -shared -fPIC -O2 -o libibverbs-dmabuf.so "$here/ibverbs_dmabuf.c" -Wl,--version-script="$here/ibverbs_dmabuf.map" -libverbs
  rm -rf root ird siw rxe ./*.log modules.list
  echo "$release" >ready
}

if [ "${1:-}" = --where ]; then
  echo "$home"
  exit 0
fi
check_system
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
"$here/../../.ci/need" qemu-system-x86 busybox-static cpio kmod xz-utils zstd pahole gcc make libc6-dev iproute2 iputils-ping \
  rdma-core ibverbs-providers libibverbs-dev librdmacm-dev ibverbs-utils rdmacm-utils perftest 9>&-
if [ ! -e "$home/ready" ]; then
  rm -rf "$cache"/build.* "$home"
  apt_update=(apt-get update -qq)
  [ "$(id -u)" = 0 ] || apt_update=(sudo -n "${apt_update[@]}")
  "${apt_update[@]}" 9>&- || echo "bed: cannot refresh apt's lists; going on with those it has" >&2
  work=$(mktemp -d "$cache/build.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  (cd "$work" && build) 9>&-
  mv "$work" "$home"
  find "$cache" -mindepth 1 -maxdepth 1 -type d -mtime +30 -exec rm -rf {} + # of scripts long changed
fi
echo "bed ready: $home (kernel $(cat "$home/ready"))"
