package fsys

import "testing"

// TestFeaturesByRelease: a feature exists in its release and in all later ones.
func TestFeaturesByRelease(t *testing.T) {
	for _, tt := range []struct {
		release         string
		writes, journal bool
	}{
		{"4.18.0-553.el8_10.x86_64", false, false},
		{"5.7.19", false, false},
		{"5.8.0", true, false},
		{"5.15.0-107-generic", true, false},
		{"5.17.0", true, true},
		{"6.1.0-18-amd64", true, true},
		{"7.0", true, true},
		{"unknown", false, false},
	} {
		if writes, journal := SyncfsReportsWrites.isIn(tt.release), SyncfsReportsJournal.isIn(tt.release); writes != tt.writes || journal != tt.journal {
			t.Errorf("%s: %t, %t", tt.release, writes, journal)
		}
	}
}

// TestFeatures: if the kernel's release has a feature, the probe succeeds.
func TestFeatures(t *testing.T) {
	for _, f := range Features {
		if f.probe == nil || !f.Has() {
			continue
		}
		if err := f.probe(); err != nil {
			t.Errorf("Linux %s lacks what %d.%d has, %s: %v", release(), f.major, f.minor, f.Name, err)
		}
	}
}
