package trust

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

const (
	// keyMagic begins a key file and includes its version.
	keyMagic = "gdrcp-key-1"
	// maxKeyFileBytes has room for the longest key, and for blanks.
	maxKeyFileBytes = 4 << 10
)

// ErrKeyFile is the error for a file that is not a key file.
var ErrKeyFile = errors.New("not a key file")

// ReadKeyFile reads the file of one key: a line "gdrcp-key-1 ID SECRET" with
// the secret in base64. If others may read or write the file, the error is a
// PermissiveError. No error includes the content of the file.
func ReadKeyFile(path string) (Key, error) {
	data, err := readPrivate(path, maxKeyFileBytes, trusted)
	if err != nil {
		return Key{}, err
	}
	k, err := parseKey(data)
	if err != nil {
		return Key{}, fmt.Errorf("%s: %w", strconv.Quote(path), err)
	}
	return k, nil
}

// WriteFile writes the key to a new file that only this user can read. If the file
// exists, that is an error: an overwritten key would be lost.
func (k Key) WriteFile(path string) error {
	if err := CheckID(k.ID); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s %s %s\n", keyMagic, k.ID, encodeSecret(k.Secret))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

func parseKey(data []byte) (k Key, err error) {
	line, rest, _ := strings.Cut(string(data), "\n")
	fields := strings.Fields(line)
	switch {
	case len(fields) == 0 || !strings.HasPrefix(fields[0], "gdrcp-key-"):
		return k, fmt.Errorf("%w: its first word is not %s", ErrKeyFile, keyMagic)
	case fields[0] != keyMagic:
		return k, fmt.Errorf("%w of this version: it does not begin with %s", ErrKeyFile, keyMagic)
	case len(fields) != 3 || strings.TrimSpace(rest) != "":
		return k, fmt.Errorf("%w: it must hold one line, %s ID SECRET", ErrKeyFile, keyMagic)
	}
	if err := CheckID(fields[1]); err != nil {
		return k, fmt.Errorf("%w: %w", ErrKeyFile, err)
	}
	k.ID = fields[1]
	if k.Secret, err = decodeSecret(fields[2]); err != nil {
		return Key{}, fmt.Errorf("%w: %w", ErrKeyFile, err)
	}
	return k, nil
}

func encodeSecret(s Secret) string { return base64.StdEncoding.EncodeToString(s.Bytes()) }

// decodeSecret accepts only the spelling that encodeSecret produces. Its error
// does not include the text.
func decodeSecret(text string) (s Secret, err error) {
	b, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(b) != SecretBytes || base64.StdEncoding.EncodeToString(b) != text {
		return s, fmt.Errorf("the secret is not base64 of %d bytes", SecretBytes)
	}
	if s = NewSecret([SecretBytes]byte(b)); s == (Secret{}) {
		return s, errors.New("the secret is all zeros")
	}
	return s, nil
}
