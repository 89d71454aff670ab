package cli

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// rootIn returns the root in a text, with its algorithm.
func rootIn(t *testing.T, text string) string {
	t.Helper()
	m := regexp.MustCompile(`root (\w+ [0-9a-f]{64})`).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("no root in %q", text)
	}
	return m[1]
}

func TestManifestOfACopy(t *testing.T) {
	s := startServer(t)
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"t/a": "A", "t/big": strings.Repeat("0123456789abcdef", 150_000), "t/empty": "", "t/sub/b": "B"})
	for _, hash := range []string{"xxh3", "blake3", "crc32c", "sha256"} {
		pushed := gdrcp(t, "-rptv", "--hash", hash, "--write-manifest", dir+"/copied", dir+"/t", s.url(hash)).want(t, exitOK)
		created := gdrcp(t, "manifest", "create", dir+"/t", "-o", dir+"/created", "--hash", hash).want(t, exitOK)
		if a, b := rootIn(t, pushed.err), rootIn(t, created.err); a != b || !strings.HasPrefix(a, hash) {
			t.Errorf("%s: the copy has root %s, the manifest %s", hash, a, b)
		}
		gdrcp(t, "manifest", "diff", dir+"/copied", dir+"/created").want(t, exitOK)
		r := gdrcp(t, "manifest", "verify", "-p", dir+"/copied", s.root+"/"+hash).want(t, exitOK)
		if rootIn(t, r.err) != rootIn(t, pushed.err) || r.out != "" || !strings.HasPrefix(r.err, "verified 4 files, 2 directories, 2.3 MiB: ") {
			t.Errorf("%s: it wrote %q and %q", hash, r.out, r.err)
		}
		// The copy matches its own manifest in both directions.
		gdrcp(t, "-r", "--manifest", dir+"/copied", s.url(hash), dir+"/back-"+hash).want(t, exitOK)
	}
}

// Different entries print differently.
func TestShownNamesAreUnambiguous(t *testing.T) {
	dir := t.TempDir()
	makeFiles(t, dir+"/t", map[string]string{"a\nb": "", `a\nb`: "", "c d": "", "plain": ""})
	for name, target := range map[string]string{"l": "b -> c", "l -> b": "c"} {
		if err := os.Symlink(target, dir+"/t/"+name); err != nil {
			t.Fatal(err)
		}
	}
	gdrcp(t, "manifest", "create", "-q", "-o", dir+"/m", dir+"/t").want(t, exitOK)
	r := gdrcp(t, "manifest", "show", dir+"/m").want(t, exitOK)
	for _, end := range []string{` "a\nb"`, ` "a\\nb"`, ` "c d"`, ` plain`, ` l -> "b -> c"`, ` "l -> b" -> c`} {
		if strings.Count(r.out, end+"\n") != 1 {
			t.Errorf("no line ends in %s:\n%s", end, r.out)
		}
	}
}

func TestManifestToStandardOutput(t *testing.T) {
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"t/a": "A"})
	r := gdrcp(t, "manifest", "create", dir+"/t").want(t, exitOK)
	if !strings.HasPrefix(r.out, "gdrcp-manifest 1 xxh3 1048576\nd 0755 ") || !strings.HasPrefix(r.err, "manifest of 1 file, 1 directory, 1 B: root xxh3 ") {
		t.Errorf("it wrote %q and %q", r.out, r.err)
	}
	p, out, _ := newProgram()
	p.stdin = strings.NewReader(r.out)
	if code := p.run(t.Context(), []string{"gdrcp", "manifest", "show", "-"}); code != exitOK {
		t.Errorf("show ended with %d", code)
	}
	if want := `^d 0755 \.\nf 0644 1 [0-9a-f]{32} a\n2 entries, 1 B in pieces of 1MiB, root xxh3 [0-9a-f]{64}, meta root [0-9a-f]{64}\n$`; !regexp.MustCompile(want).MatchString(out.String()) {
		t.Errorf("show wrote %q", out)
	}
	if r := gdrcp(t, "manifest", "create", dir+"/t", "-q").want(t, exitOK); r.err != "" {
		t.Errorf("-q wrote %q", r.err)
	}
}

func TestManifestVerifyNamesWhatDiffers(t *testing.T) {
	dir := t.TempDir()
	big := strings.Repeat("x", 3<<20)
	makeFiles(t, dir, map[string]string{"t/a": "A", "t/big": big, "t/gone": "G", "t/gro\nwn": "1", "t/type": "T"})
	gdrcp(t, "manifest", "create", dir+"/t", "-o", dir+"/m.zst").want(t, exitOK)
	makeFiles(t, dir, map[string]string{"t/big": big[:1<<20] + "y" + big[1<<20+1:], "t/extra": "E", "t/gro\nwn": "12"})
	for _, name := range []string{"gone", "type"} {
		if err := os.Remove(dir + "/t/" + name); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(dir+"/t/type", 0o755); err != nil {
		t.Fatal(err)
	}
	r := gdrcp(t, "manifest", "verify", dir+"/m.zst", dir+"/t").want(t, exitIntegrity)
	want := `"big": content differs in bytes 1048576-2097151
"extra": not in the manifest
"gone": missing
"gro\nwn": size is 2, not 1, content differs in bytes 0-1
"type": type is d, not f
`
	if r.out != want || r.err != "NOT as the manifest says: 3 bad, 1 missing, 1 extra; 1 file, 1 directory, 1 B as it should be\n" {
		t.Errorf("it wrote\n%s%s", r.out, r.err)
	}
	r = gdrcp(t, "manifest", "verify", "--json", dir+"/m.zst", dir+"/t").want(t, exitIntegrity)
	kinds := map[string]string{"big": "bad", "extra": "extra", "gone": "missing", "gro\nwn": "bad", "type": "bad"}
	for _, e := range r.events(t) {
		if e["event"] == "difference" && kinds[e["path"].(string)] != e["kind"] {
			t.Errorf("event %v", e)
		}
	}
	if e := r.event(t, "verified"); e["bad"] != 3.0 || e["missing"] != 1.0 || e["extra"] != 1.0 || e["files"] != 1.0 {
		t.Errorf("event %v", e)
	}
	// diff against a manifest of the current tree prints the same.
	gdrcp(t, "manifest", "create", dir+"/t", "-o", dir+"/n").want(t, exitOK)
	r = gdrcp(t, "manifest", "diff", dir+"/m.zst", dir+"/n").want(t, exitIntegrity)
	for _, line := range []string{`+ "extra"`, `- "gone"`, `~ "big": content,mtime, bytes 1048576-2097151`, `~ "gro\nwn": size,content,mtime, size 1 and 2, bytes 0-1`} {
		if !strings.Contains(r.out, line+"\n") {
			t.Errorf("diff did not write %q but\n%s", line, r.out)
		}
	}
	if e := gdrcp(t, "manifest", "diff", "--json", dir+"/m.zst", dir+"/n").want(t, exitIntegrity).event(t, "compared"); e["identical"] != false || e["differences"] == 0.0 {
		t.Errorf("event %v", e)
	}
}

func TestManifestOfOneFile(t *testing.T) {
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"a": "A", "b": "A", "c": "C"})
	gdrcp(t, "manifest", "create", dir+"/a", "-o", dir+"/m").want(t, exitOK)
	gdrcp(t, "manifest", "verify", dir+"/m", dir+"/b").want(t, exitOK)
	r := gdrcp(t, "manifest", "verify", dir+"/m", dir+"/c").want(t, exitIntegrity)
	if r.out != "\"c\": content differs in bytes 0-0\n" {
		t.Errorf("it wrote %q", r.out)
	}
}

func TestBadManifests(t *testing.T) {
	s := startServer(t)
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"t/a": "A", "t/b": "B"})
	good := gdrcp(t, "manifest", "create", dir+"/t").want(t, exitOK).out
	for name, c := range map[string]struct{ text, why string }{
		"none":      {"", "manifest is truncated"},
		"other":     {"hello\n", "malformed manifest"},
		"later":     {strings.Replace(good, "manifest 1 ", "manifest 3 ", 1), "unknown manifest version"},
		"truncated": {good[:strings.Index(good, "root ")], "manifest is truncated"},
		"damaged":   {strings.Replace(good, " 1 ", " 2 ", -1), "line"},
		"longer":    {good + "x\n", "malformed manifest"},
		"path":      {strings.Replace(good, " a\n", " ../a\n", 1), "invalid path"},
		"long line": {good + strings.Repeat("x", 1<<20), "malformed manifest"},
	} {
		makeFiles(t, dir, map[string]string{"m": c.text})
		for _, args := range [][]string{
			{"manifest", "verify", dir + "/m", dir + "/t"}, {"manifest", "show", dir + "/m"}, {"manifest", "diff", dir + "/m", dir + "/m"},
		} {
			r := gdrcp(t, args...).want(t, exitIntegrity)
			if !strings.Contains(r.err, c.why) || strings.Count(r.err, "\n") != 1 {
				t.Errorf("%s: %s wrote %q", name, args[1], r.err)
			}
		}
		if r := gdrcp(t, "-r", "--transport", "tcp", "--manifest", dir+"/m", dir+"/t", s.url("copy")); r.code != exitIntegrity {
			t.Errorf("%s: a copy ended with %d and %q", name, r.code, r.err)
		}
	}
	gdrcp(t, "manifest", "verify", dir+"/not there", dir+"/t").want(t, exitError)
	gdrcp(t, "manifest", "create", dir+"/not there").want(t, exitError)
}

func TestUnwritableManifest(t *testing.T) {
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"a": "A"})
	r := gdrcp(t, "manifest", "create", dir+"/a", "-o", dir+"/none/m").want(t, exitError)
	if !strings.Contains(r.err, "no such file or directory") {
		t.Errorf("it wrote %q", r.err)
	}
}

// Rules exclude the same entries from a manifest as from a copy. In a verification they
// exclude entries of both the tree and the manifest.
func TestManifestRules(t *testing.T) {
	s := startServer(t)
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{
		"t/a": "A", "t/x.o": "O", "t/keep/b": "B", "t/no/c": "C", "t/no/d/e": "E", "t/no-d/f": "F", "t/no-d/x.o": "O", "rules": "- *.o\n", "all/a": "A",
	})
	all := gdrcp(t, "manifest", "create", dir+"/t", "-o", dir+"/all.m").want(t, exitOK)
	for _, rules := range [][]string{
		{"--exclude", "*.o"}, {"--exclude", "/t/no"}, {"-f", "- no*/", "--include", "x.o"}, {"--exclude-from", dir + "/rules", "--exclude", "keep/b"},
		{"--include", "*/", "--include", "b", "--exclude", "*"},
	} {
		copied := gdrcp(t, append(rules, "-rv", dir+"/t", s.url("t"))...).want(t, exitOK)
		args := append([]string{"manifest"}, rules...)
		created := gdrcp(t, append(args, "create", dir+"/t", "-o", dir+"/some.m")...).want(t, exitOK)
		if rootIn(t, copied.err) != rootIn(t, created.err) || rootIn(t, created.err) == rootIn(t, all.err) {
			t.Errorf("%q: the copy\n%sthe manifest\n%s", rules, copied.err, created.err)
		}
		// Excluded entries are neither extra nor missing.
		r := gdrcp(t, append(args, "verify", dir+"/some.m", dir+"/t")...).want(t, exitOK)
		if rootIn(t, r.err) != rootIn(t, created.err) {
			t.Errorf("%q: verified\n%s", rules, r.err)
		}
		r = gdrcp(t, append(args, "verify", dir+"/all.m", s.root+"/t")...).want(t, exitOK)
		if strings.Contains(r.err, "root") || !strings.Contains(r.err, "of the manifest left out") {
			t.Errorf("%q: it says of a part\n%s", rules, r.err)
		}
		gdrcp(t, "manifest", "verify", dir+"/all.m", s.root+"/t").want(t, exitIntegrity)
		if err := os.RemoveAll(s.root + "/t"); err != nil {
			t.Fatal(err)
		}
	}
	// Other entries still count.
	makeFiles(t, dir, map[string]string{"t/a": "Z", "t/no-d/new": "", "t/x.o": "Z"})
	r := gdrcp(t, "manifest", "verify", "--json", "--exclude", "*.o", "--exclude", "no", dir+"/all.m", dir+"/t").want(t, exitIntegrity)
	if v := r.event(t, "verified"); v["bad"] != 1.0 || v["extra"] != 1.0 || v["missing"] != 0.0 || v["left_out"] != 6.0 {
		t.Errorf("it found %v", v)
	}
	// A single file may have any name.
	gdrcp(t, "manifest", "create", dir+"/all/a", "-o", dir+"/a.m").want(t, exitOK)
	gdrcp(t, "manifest", "verify", "--exclude", "a", dir+"/a.m", dir+"/all/a").want(t, exitOK)
	p, _, errs := newProgram()
	code := p.run(t.Context(), []string{"gdrcp", "manifest", "verify", "--exclude-from", "-", "-", dir})
	if want := "gdrcp: MANIFEST and --exclude-from cannot both be read from standard input\n"; code != exitUsage || errs.String() != want {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

// A manifest with a list of names equals that of a copy with the list, here and on
// another host, for any names.
func TestManifestOfAList(t *testing.T) {
	s := startServer(t)
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{
		"t/a": "A", "t/sub/b": "B", "t/sub/deep/c": "C", "t/x/y": "Y", "t/x/z/w": "W", "t/#odd": "O", "t/;odd": "P", "t/no": "N", "t/sub/skip.o": "S", "t/new\nline": "L",
		"list": "./#odd\x00a\x00x/\x00sub\x00./;odd\x00new\nline\x00", "all": "/\x00", "missing": "a\x00none\x00x/gone\x00",
	})
	for i, options := range [][]string{
		{"--files-from", dir + "/list"}, {"-r", "--files-from", dir + "/list"}, {"--files-from", dir + "/all"}, {"-r", "--files-from", dir + "/all"},
		{"-r", "--files-from", dir + "/list", "--exclude", "*.o", "--exclude", "/x/z"},
	} {
		options = append(options, "-0")
		copied := dir + "/copied" + string(rune('0'+i))
		makeFiles(t, s.root, map[string]string{string(rune('0'+i)) + "/": ""})
		gdrcp(t, append(options, "--write-manifest", copied, dir+"/t", s.url(string(rune('0'+i))))...).want(t, exitOK)
		want, err := os.ReadFile(copied)
		if err != nil {
			t.Fatal(err)
		}
		here := gdrcp(t, append([]string{"manifest", "create", dir + "/t"}, options...)...).want(t, exitOK)
		there := farManifest(t, "create", append(options, "h:"+dir+"/t")...).want(t, exitOK)
		if here.out != string(want) || there.out != here.out {
			t.Errorf("%q: the copy has\n%shere\n%sthere\n%s", options, want, here.out, there.out)
		}
	}
	local := gdrcp(t, "manifest", "create", "--from0", "--files-from", dir+"/missing", dir+"/t").want(t, exitPartial)
	far := farManifest(t, "create", "--from0", "--files-from", dir+"/missing", "h:"+dir+"/t").want(t, exitPartial)
	if local.out != far.out || strings.Count(local.err, "no such file or directory\n") != 2 || strings.ReplaceAll(far.err, " (at h)\n", "\n") != local.err {
		t.Errorf("of names that are not there: %s\n%s", local.err, far.err)
	}
	for _, path := range []string{dir + "/t/a", "h:" + dir + "/t/a"} {
		r := farManifest(t, "create", "--files-from", dir+"/list", "-0", path).want(t, exitError)
		if !strings.Contains(r.err, "is not a directory: a list of files needs one") || strings.Count(r.err, "\n") != 1 {
			t.Errorf("a list of a file: %q", r.err)
		}
	}
}

// The error for a manifest that cannot be created has the manifest's name.
func TestManifestInNoDirectory(t *testing.T) {
	dir := t.TempDir()
	r := gdrcp(t, "manifest", "create", "-o", dir+"/none/x", dir).want(t, exitError)
	if want := "gdrcp: create manifest: open " + dir + "/none/x: no such file or directory\n"; r.err != want {
		t.Errorf("it wrote %q, want %q", r.err, want)
	}
}
