package fileset

import (
	"crypto/rand"
	"encoding/hex"
)

// StageID distinguishes the staging directory of one copy, in all of its
// attempts, from those of others.
type StageID [stageDigits / 2]byte

// NewStageID returns a random StageID.
func NewStageID() (id StageID) {
	rand.Read(id[:]) // never fails, crypto/rand
	return id
}

// String returns the id in hexadecimal digits, as used in names.
func (id StageID) String() string { return hex.EncodeToString(id[:]) }
