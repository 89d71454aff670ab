package wire

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestNumbersAreUnique: no two numbers of one kind are equal, and each is written
// explicitly, so that an addition does not renumber others.
func TestNumbersAreUnique(t *testing.T) {
	kinds := "Msg|Door|Mode|Flag|TagEnt|tagEnt|tagMem|tagCost|Tag|tag|Selection|Ext|Codec|Class|Deleted|Compress|rule|name"
	number := regexp.MustCompile(`(?m)^(?:const|\t) ?(` + kinds + `)([A-Z]\w*)(?: +\w+)? += (\d+|1 << \d+)(?: \| MustUnderstand)?(?: +//.*)?$`)
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	seen, count := make(map[string]string), make(map[string]int)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "iota") {
			t.Errorf("%s counts numbers instead of writing them out", file)
		}
		for _, m := range number.FindAllStringSubmatch(string(text), -1) {
			kind := strings.ToLower(m[1])
			if other := seen[kind+m[3]]; other != "" {
				t.Errorf("%s and %s are both %s", m[1]+m[2], other, m[3])
			}
			seen[kind+m[3]] = m[1] + m[2]
			count[kind]++
		}
	}
	for kind, least := range map[string]int{
		"msg": 24, "door": 5, "mode": 5, "flag": 29, "tagent": 15, "tagmem": 6, "tagcost": 7, "tag": 15, "selection": 3, "ext": 6, "codec": 3, "class": 5, "deleted": 5, "compress": 4, "rule": 6, "name": 3,
	} {
		if count[kind] < least {
			t.Errorf("%d numbers of the kind %s were seen, and there are %d", count[kind], kind, least)
		}
	}
}
