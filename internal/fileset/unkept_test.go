package fileset

import (
	"fmt"
	"math"
	"testing"
)

// TestUnkeptListIsBounded: the source names extended attributes, and may name many.
func TestUnkeptListIsBounded(t *testing.T) {
	var l UnkeptList
	for i := range 10_000 {
		l.Add(Unkept{Attribute: fmt.Sprint("user.", i%5000), Dir: ".", Entries: 1, First: fmt.Sprint(i)})
	}
	l.Add(Unkept{Attribute: "user.0", Dir: ".", Entries: math.MaxInt64})
	if len(l) != maxUnkept+1 || l[0].Entries != math.MaxInt64 || l[0].First != "0" || l[1].Entries != 2 {
		t.Errorf("%d attributes, the first ones %+v", len(l), l[:2])
	}
	if last := l[maxUnkept]; last.Attribute != otherAttributes || last.Entries != 10_000-2*maxUnkept {
		t.Errorf("%+v", last)
	}
}
