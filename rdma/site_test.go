package rdma

import (
	"net/netip"
	"testing"
)

func TestSite(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		same bool
	}{
		{"192.0.2.1", "192.0.2.1", true},
		{"192.0.2.1", "192.0.2.2", false},
		{"::ffff:192.0.2.1", "192.0.2.1", true},
		{"2001:db8:0:1::1", "2001:db8:0:ff::2", true},
		{"2001:db8:0:1::1", "2001:db8:0:100::1", false},
		{"fe80::1%a", "fe80::2%b", true},
	} {
		if same := Site(netip.MustParseAddr(tc.a)) == Site(netip.MustParseAddr(tc.b)); same != tc.same {
			t.Errorf("%s and %s: one place is %v", tc.a, tc.b, same)
		}
	}
	if Site(netip.Addr{}) != (netip.Prefix{}) {
		t.Error("no address")
	}
}

func TestNeedsZone(t *testing.T) {
	for addr, want := range map[string]bool{
		"fe80::1": true, "fe80::1%eth0": true,
		"169.254.7.1": false, "::ffff:169.254.7.1": false, "10.7.0.1": false, "2001:db8::1": false,
	} {
		if got := NeedsZone(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: %v", addr, got)
		}
	}
}
