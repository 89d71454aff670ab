package remote

import (
	"errors"
	"fmt"
	"strings"
)

// SplitCommand splits a command of --rsh as rsync does (rsync(1), --rsh): spaces
// separate words, single and double quotes preserve spaces, and a doubled quote inside
// quotes of its kind stands for itself. A backslash is an ordinary character.
func SplitCommand(s string) ([]string, error) {
	var words []string
	var word strings.Builder
	inWord := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == ' ':
			if inWord {
				words = append(words, word.String())
				word.Reset()
				inWord = false
			}
		case c == '\'' || c == '"':
			inWord = true
			length, text, closed := quoted(s[i+1:], c)
			if !closed {
				return nil, fmt.Errorf("the quote %c has no end", c)
			}
			word.WriteString(text)
			i += length
		default:
			inWord = true
			word.WriteByte(c)
		}
	}
	if inWord {
		words = append(words, word.String())
	}
	if len(words) == 0 || words[0] == "" {
		return nil, errors.New("no command")
	}
	return words, nil
}

// quoted reads to the closing quote. length counts that quote, too.
func quoted(s string, quote byte) (length int, text string, closed bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] != quote:
			b.WriteByte(s[i])
		case i+1 < len(s) && s[i+1] == quote:
			b.WriteByte(quote)
			i++
		default:
			return i + 1, b.String(), true
		}
	}
	return 0, "", false
}

// shellQuote makes s one word of any shell. s must have no single quote and no newline:
// csh and other shells have no common way to quote those.
func shellQuote(s string) string { return "'" + s + "'" }

// shellCharacters are those that ssh(1) refuses in hosts and users, because a ProxyCommand
// or a Match exec of its configuration hands both to a shell. In a host it refuses $ and \ too.
const shellCharacters = "'`\";&<>|(){}"

// CheckHost refuses a host or a user that is invalid, that the remote shell command would
// take for an option, or that a shell would act on.
func CheckHost(user, host string) error {
	switch {
	case host == "":
		return errors.New("a host is missing")
	case host[0] == '-':
		return errors.New("a host does not begin with a dash")
	case strings.HasPrefix(user, "-"):
		return errors.New("a user does not begin with a dash")
	case strings.ContainsAny(host+user, " \t\r\n\x00"):
		return errors.New("a host or user has no white space")
	case strings.ContainsAny(host, shellCharacters+`$\`), strings.ContainsAny(user, shellCharacters):
		return errors.New("a host or user has no characters that a shell acts on")
	}
	return nil
}
