#!/usr/bin/env bash
# Builds the RDMA test bed's guest: a stock Debian kernel with rdma_rxe (Soft-RoCE, RoCEv2; built here to add dma-buf registration,
# see rxe_dmabuf.c) and siw (Soft-iWARP; built here because Debian leaves it out), and an initramfs that mounts the host's root
# read-only over 9p.
# Nothing of the kernel is installed on the host: packages are downloaded and unpacked under $BED_HOME.
# Needs: apt with a deb source list, gcc, make. Takes about a minute once; a second call returns at once.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
home=${BED_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/gdrcp-bed}
[ -e "$home/ready" ] && { echo "bed ready: $home"; exit 0; }
mkdir -p "$home/deb" "$home/root"; cd "$home"

need=(qemu-system-x86 busybox-static cpio kmod xz-utils zstd pahole iproute2 iputils-ping
      rdma-core ibverbs-providers libibverbs-dev librdmacm-dev ibverbs-utils rdmacm-utils perftest)
missing=(); for p in "${need[@]}"; do dpkg -s "$p" >/dev/null 2>&1 || missing+=("$p"); done
if [ ${#missing[@]} -gt 0 ]; then
  [ "$(id -u)" = 0 ] && sudo= || sudo=sudo
  $sudo apt-get update -qq
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >apt.log
fi

img=$(apt-cache depends linux-image-6.12-amd64 | awk '/Depends: linux-image/{print $2; exit}')
rel=${img#linux-image-}
ver=$(apt-cache policy "$img" | awk '/Candidate/{print $2}')
(cd deb && rm -f ./*.deb && apt-get download -qq -o APT::Sandbox::User=root \
  "$img=$ver" "linux-headers-$rel=$ver" "linux-headers-${rel%-amd64}-common=$ver" "linux-kbuild-${rel%-amd64}=$ver" linux-source-6.12)
for d in deb/linux-image* deb/linux-headers* deb/linux-kbuild*; do dpkg -x "$d" root; done
mkdir -p root/lib/modules

# siw and rxe, out of tree, against the unpacked headers (their Makefile names /usr/src absolutely)
dpkg-deb --fsys-tarfile deb/linux-source-6.12*.deb | tar -xO --wildcards '*/linux-source-6.12.tar.xz' |
  tar -xJ --wildcards --strip-components=4 -C "$home" '*/drivers/infiniband/sw/siw' '*/drivers/infiniband/sw/rxe'
"$here/rxe_dmabuf.sh" "$home/rxe"
hdr=$home/root/usr/src/linux-headers-$rel
grep -rlZ '/usr/src/linux-headers' "$hdr" --include=Makefile --include='*.mk' | xargs -0r sed -i "s#/usr/src/linux-headers#$home/root/usr/src/linux-headers#g"
for l in "$hdr"/scripts "$hdr"/tools; do
  [ -L "$l" ] && ln -sfn "$home/root/usr/lib/linux-kbuild-${rel%-amd64}/$(basename "$l")" "$l"
done
for m in siw rxe; do
  make -s -C "$hdr" M="$home/$m" CONFIG_RDMA_SIW=m CONFIG_RDMA_RXE=m modules >$m.log 2>&1 || { tail -20 $m.log; exit 1; }
done
strip --strip-debug siw/siw.ko rxe/rdma_rxe.ko

depmod -b "$home/root" "$rel" 2>/dev/null || true
rm -rf ird; mkdir -p ird/{bin,modules,proc,sys,dev,root}
cp /bin/busybox ird/bin/; cp "$here/init" ird/init; chmod +x ird/init
for m in 9p 9pnet_virtio virtio_net veth crc32_generic crc32c_generic libcrc32c sch_netem sch_tbf \
         dm_mod dm_flakey loop xfs overlay fuse \
         rdma_rxe ib_uverbs rdma_ucm rdma_cm ib_umad; do
  modprobe -d "$home/root" -S "$rel" --show-depends "$m" 2>/dev/null | awk '/^insmod/{print $2}'
done | awk '!seen[$0]++' >modules.list
: >ird/modules.order
while read -r f; do
  b=$(basename "$f"); b=${b%.xz}
  case $f in *.xz) xz -dc "$f" >"ird/modules/$b" ;; *) cp "$f" "ird/modules/$b" ;; esac
  echo "$b" >>ird/modules.order
done <modules.list
cp siw/siw.ko rxe/rdma_rxe.ko ird/modules/; echo siw.ko >>ird/modules.order
(cd ird && find . | cpio -o -H newc 2>/dev/null | gzip -1) >initrd.gz
cp "root/boot/vmlinuz-$rel" vmlinuz
gcc -shared -fPIC -O2 -o libibverbs-dmabuf.so "$here/ibverbs_dmabuf.c" -Wl,--version-script="$here/ibverbs_dmabuf.map" -libverbs
rm -rf deb root ird siw rxe
touch ready; echo "bed ready: $home (kernel $rel)"
