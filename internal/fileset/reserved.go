package fileset

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
)

// The names of gdrcp's own files. A prefix and 32 lowercase hexadecimal digits name a file
// that is being written, or a journal. A staging directory's name has 16 digits derived
// from its final name, a hyphen, and 16 digits of the copy's own.
const (
	TempPrefix    = ".gdrcp-"
	journalPrefix = ".gdrcp-journal-"
	StagePrefix   = ".gdrcp-tree-"
	tempDigits    = 32
	stageDigits   = 16
)

// TreeMark is the attribute that marks a tree that was published as a whole. It
// is never copied (-X).
const TreeMark = "user.gdrcp.tree"

// ErrReserved: the name has the form of the names of gdrcp's own files.
var ErrReserved = errors.New("the name is reserved for gdrcp's temporary files, which may be removed")

// TempName returns a random name for a file that is being written.
func TempName() string {
	var random [tempDigits / 2]byte
	rand.Read(random[:]) // never fails, crypto/rand
	name := make([]byte, len(TempPrefix)+tempDigits)
	copy(name, TempPrefix)
	hex.Encode(name[len(TempPrefix):], random[:])
	return string(name)
}

// IsTemp reports whether a name has the form of TempName's.
func IsTemp(name []byte) bool {
	digits, ok := bytes.CutPrefix(name, []byte(TempPrefix))
	return ok && len(digits) == tempDigits && isHex(digits)
}

// JournalName returns the name of the journal for the file with the final name leaf.
func JournalName(leaf string) string {
	sum := sha256.Sum256([]byte(leaf))
	return journalPrefix + hex.EncodeToString(sum[:tempDigits/2])
}

// IsJournal reports whether a name has the form of JournalName's.
func IsJournal(name []byte) bool {
	digits, ok := bytes.CutPrefix(name, []byte(journalPrefix))
	return ok && len(digits) == tempDigits && isHex(digits)
}

// IsReserved reports whether a name is reserved for gdrcp's own files.
func IsReserved(name []byte) bool {
	return IsTemp(name) || IsJournal(name) || IsStage(name)
}

// StageStem returns the prefix of the names of all staging directories for a final name.
func StageStem(leaf string) string {
	sum := sha256.Sum256([]byte(leaf))
	return StagePrefix + hex.EncodeToString(sum[:stageDigits/2]) + "-"
}

// RandomStage returns the name of a staging directory that belongs to no tree,
// so that nobody adopts it.
func RandomStage() string {
	return StagePrefix + NewStageID().String() + "-" + NewStageID().String()
}

// IsStage reports whether a name may be a staging directory's.
func IsStage(name []byte) bool {
	digits, ok := bytes.CutPrefix(name, []byte(StagePrefix))
	return ok && len(digits) == 2*stageDigits+1 && digits[stageDigits] == '-' && isHex(digits[:stageDigits]) && isHex(digits[stageDigits+1:])
}

func isHex(digits []byte) bool { return len(bytes.Trim(digits, "0123456789abcdef")) == 0 }
