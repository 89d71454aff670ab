package fileset

import (
	"crypto/rand"
	"encoding/hex"
)

// StageID tells the staging directory of one copy, in all of its tries, from those of
// others.
type StageID [stageDigits / 2]byte

// NewStageID returns a random StageID.
func NewStageID() (id StageID) {
	rand.Read(id[:]) // never fails, crypto/rand
	return id
}

// String is the id in hexadecimal digits, as it is in names.
func (id StageID) String() string { return hex.EncodeToString(id[:]) }
