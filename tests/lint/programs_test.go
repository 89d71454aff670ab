package lint

import (
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

// minimal are the programs of a minimal Debian 12, as debootstrap makes it with --variant=minbase, with git, make, gcc and Go.
const minimal = `bash sh apt-get apt-cache apt-config dpkg dpkg-deb dpkg-query awk sed grep find xargs tar gzip diff cmp env
	cp mv rm ln ls cat tee cut head tail sort uniq wc seq shuf tr mkdir rmdir mktemp mkfifo touch chmod truncate install readlink realpath dirname basename
	id nproc uname du df dd date sleep timeout stdbuf sha256sum cksum expand true false printf chroot
	mount umount flock setpriv prlimit unshare pivot_root go gofmt git make gcc cc strip`

// deviceTests need RDMA devices, and are skipped without them, which is everywhere except
// in the bed.
var deviceTests = []string{"rdma/verbs/real_test.go"}

var projectPrograms = Programs{
	Packages: func() map[string]string {
		packages := map[string]string{
			"rsync": "rsync", "ssh": "openssh-client", "scp": "openssh-client", "ssh-keygen": "openssh-client", "sshd": "openssh-server",
			"ip": "iproute2", "tc": "iproute2", "rdma": "iproute2", "ping": "iputils-ping", "pgrep": "procps",
			"mkfs.ext4": "e2fsprogs", "mkfs.xfs": "xfsprogs", "mkfs.btrfs": "btrfs-progs", "losetup": "mount", "dmsetup": "dmsetup", "b3sum": "b3sum", "zstd": "zstd", "valgrind": "valgrind", "callgrind_annotate": "valgrind", "xz": "xz-utils", "strace": "strace", "shellcheck": "shellcheck", "clang-16": "clang-16",
			"zsh": "zsh", "fish": "fish", "man": "man-db", "groff": "groff-base", "mandoc": "mandoc", "systemd-analyze": "systemd",
			"qemu-system-x86_64": "qemu-system-x86", "cpio": "cpio", "depmod": "kmod", "modprobe": "kmod", "debootstrap": "debootstrap",
			"rping": "rdmacm-utils", "rcopy": "rdmacm-utils", "ibv_rc_pingpong": "ibverbs-utils", "ib_write_bw": "perftest",
		}
		for program := range strings.FieldsSeq(minimal) {
			packages[program] = ""
		}
		return packages
	}(),
	Optional: map[string]string{
		"sudo": "is for those who are not root",
		"g++":  "compares with CUDA's headers, which no Debian package brings",
	},
	Starts: map[string][]string{
		"test-go": {"."}, "test-race": {"."}, "test-nocgo": {"."},
		"test-bed": {"rdma", "gpu", "xfer", "tests/program"},
		"check":    {"chunker", "gpu", "internal", "manifest", "rdma", "xfer"},
		"bench":    {"tests/bench"},
		"demo":     {"tests/demo/safetensors"}, "demo-rdma": {"tests/demo/safetensors"},
	},
	Skips: map[string][]string{"test-go": deviceTests, "test-race": deviceTests, "test-nocgo": deviceTests, "check": deviceTests},
}

// TestProgramsAreInstalled: this module's targets install the programs that they start.
func TestProgramsAreInstalled(t *testing.T) {
	found, err := CheckPrograms(os.DirFS("../.."), projectPrograms)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range found {
		t.Error(line)
	}
}

// without is the module with the text of one file replaced.
type without struct {
	fs.FS
	name, text string
}

func (w without) ReadFile(name string) ([]byte, error) {
	if name == w.name {
		return []byte(w.text), nil
	}
	return fs.ReadFile(w.FS, name)
}

// TestMissingPackagesAreFound checks this module with one target's installation of a
// program removed.
func TestMissingPackagesAreFound(t *testing.T) {
	for _, c := range []struct{ file, left, want string }{
		{"Makefile", "rsync:rsync", "tests/program/metadata_test.go:1: starts rsync, but make test-go does not install rsync"},
		{"tests/bed/setup.sh", "rdmacm-utils", "rdma/verbs/real_test.go:1: starts rping, but make test-bed does not install rdmacm-utils"},
		{"tests/bed/setup.sh", "perftest", "tests/bench/bed.go:1: starts ib_write_bw, but make bench does not install perftest"},
	} {
		b, err := os.ReadFile("../../" + c.file)
		if err != nil {
			t.Fatal(err)
		}
		// Its first occurrence is in a line that installs it.
		text := strings.Replace(string(b), c.left, "", 1)
		found, err := CheckPrograms(without{os.DirFS("../.."), c.file, text}, projectPrograms)
		if err != nil || !strings.Contains(strings.Join(found, "\n"), c.want) {
			t.Errorf("without %s in %s: %q, %v; want %s", c.left, c.file, found, err, c.want)
		}
	}
}

// samplePrograms are the programs of a small module.
var samplePrograms = Programs{
	Packages: map[string]string{"sed": "", "rsync": "rsync", "ip": "iproute2", "tc": "iproute2"},
	Optional: map[string]string{"g++": "is a luxury"},
	Starts:   map[string][]string{"test": {".", "tests/a"}},
}

func TestCheckPrograms(t *testing.T) {
	const good = "test: tools\n\tsed\ntools:\n\t@.ci/need rsync ip:iproute2\n"
	goFile := func(body string) string {
		return "package p\nimport (\"os/exec\"; \"testing\")\nfunc f(t *testing.T) {\n" + body + "\n}\n"
	}
	for _, c := range []struct {
		name, makefile string
		file, text     string
		want           string // part of a single report; "" for none
	}{
		{"installed by what the target depends on", good, "a_test.go", goFile(`exec.Command("rsync")`), ""},
		{"installed by nobody", "test:\n\tsed\n", "a_test.go", goFile(`exec.Command("rsync")`), "a_test.go:1: starts rsync, but make test"},
		{"by another target", "test:\n\tsed\ntools:\n\t.ci/need rsync\n", "a_test.go", goFile(`exec.LookPath("rsync")`), "starts rsync, but make test"},
		{"in a comment only", "test:\n\t# .ci/need rsync\n", "a_test.go", goFile(`exec.LookPath("rsync")`), "starts rsync, but make test"},
		{"unknown", good, "a_test.go", goFile(`exec.CommandContext(t.Context(), "socat")`), "a_test.go:1: starts socat: which"},
		{"known, by way of a helper", "test:\n\tsed\n", "a_test.go", goFile(`run(t, "ip", "link")`), "starts ip, but make test"},
		{"optional", "test:\n\tsed\n", "a_test.go", goFile(`exec.LookPath("g++")`), ""},
		{"a file here", good, "a_test.go", goFile(`exec.Command("./socat")`), ""},
		{"of the product", good, "a.go", goFile(`exec.Command("socat")`), ""},
		{"of a program of no target", good, "tests/x/a.go", "package main\nvar a = \"rsync\"\n", ""},
		{"of a program of the target", "test:\n\tsed\n", "tests/a/a.go", "package main\nvar a = \"rsync\"\n", "starts rsync, but make test"},
		{"of what tests share", "test:\n\tsed\n", "tests/x/a.go", "package x\nimport \"os/exec\"\nvar a = exec.Command(\"rsync\")\n", "starts rsync, but make test"},
	} {
		root := fstest.MapFS{"Makefile": {Data: []byte(c.makefile)}, c.file: {Data: []byte(c.text)}}
		found, err := CheckPrograms(root, samplePrograms)
		if err != nil || (len(found) > 0) != (c.want != "") || !strings.Contains(strings.Join(found, "\n"), c.want) {
			t.Errorf("%s: found %q, %v; want %q", c.name, found, err, c.want)
		}
	}
}

// TestScriptsInstall: a script that a target runs, and a script that this one runs, also
// install programs.
func TestScriptsInstall(t *testing.T) {
	root := fstest.MapFS{
		"Makefile":  {Data: []byte("test:\n\tif bin/x; then true; fi\n")},
		"bin/x":     {Data: []byte("#!/bin/bash\n\"$here/y\" z\n")},
		"bin/y":     {Data: []byte("#!/bin/bash\n\"$here/../.ci/need\" \\\n  rsync:rsync\n")},
		"a_test.go": {Data: []byte("package p\nimport \"os/exec\"\nvar a = exec.Command(\"rsync\")\n")},
	}
	if found, err := CheckPrograms(root, samplePrograms); err != nil || len(found) > 0 {
		t.Errorf("%q, %v", found, err)
	}
	root["bin/y"].Data = []byte("#!/bin/bash\n# .ci/need rsync\n")
	if found, err := CheckPrograms(root, samplePrograms); err != nil || len(found) != 1 {
		t.Errorf("without what installs rsync: %q, %v", found, err)
	}
}
