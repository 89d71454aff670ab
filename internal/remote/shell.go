package remote

import (
	"errors"
	"fmt"
	"strings"
)

// SplitCommand splits the command in --rsh as rsync does (rsync(1), --rsh): spaces
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

// quoted reads up to the closing quote. length includes that quote.
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

// shellQuote quotes s as one word for any shell. s must contain no single quote and no
// newline: there is no way to quote those that csh and other shells have in common.
func shellQuote(s string) string { return "'" + s + "'" }

// shellCharacters are the characters that ssh(1) refuses in hosts and users,
// because a ProxyCommand or a Match exec in its configuration passes both to a
// shell. In a host it also refuses $ and \.
const shellCharacters = "'`\";&<>|(){}"

// CheckHost refuses a host or a user that is invalid, that the remote shell
// command would interpret as an option, or that a shell would interpret.
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
