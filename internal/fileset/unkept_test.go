package fileset

import (
	"fmt"
	"math"
	"testing"
)

// TestUnkeptListIsBounded: the source may name many extended attributes.
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

// TestUnkeptOfAttempts: an entry that two attempts counted is not counted twice.
func TestUnkeptOfAttempts(t *testing.T) {
	first := UnkeptList{{Attribute: AttributeTime, Dir: ".", Entries: 7, First: "a"}, {Attribute: AttributeMode, Dir: ".", Entries: 1, First: "b"}}
	second := UnkeptList{{Attribute: AttributeTime, Dir: ".", Entries: 5, First: "f"}, {Attribute: AttributeOwner, Dir: ".", Entries: 2, First: "g"}}
	got := fmt.Sprint(second.WithEarlier(first))
	if want := fmt.Sprint(UnkeptList{{AttributeTime, ".", 7, "a", "", true}, first[1], second[1]}); got != want {
		t.Errorf("%v, want %v", got, want)
	}
	if first[0].AtLeast || fmt.Sprint(second.WithEarlier(nil)) != fmt.Sprint(second) {
		t.Errorf("%v and %v", first, second)
	}
}
