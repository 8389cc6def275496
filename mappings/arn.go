package mappings

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// IAM's limits on a role: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html and
// https://docs.aws.amazon.com/IAM/latest/APIReference/API_Role.html.
const (
	maxRoleName = 64
	maxRolePath = 512 // with its first and last slash
)

var (
	partitionFormat = regexp.MustCompile(`^aws(-[a-z0-9]+)*$`)
	accountFormat   = regexp.MustCompile(`^[0-9]{12}$`)
)

// ParseRole returns the ARN of the role that value names: "name", "path/name" and "/path/name" lie under baseARN; an
// ARN of any partition and account stands for itself. The result always has the shape
// arn:PARTITION:iam::ACCOUNT:role/PATH/NAME with an account of 12 digits, and unless value is itself an ARN it begins
// with the base ARN.
//
// Stricter than IAM, a path is made of the characters of names, without empty, "." and ".." segments: a colon could make
// it pose as another ARN, a percent sign or question mark cannot be asked for at the metadata service, and a quote or
// semicolon has no business in a message that an operator may paste into a shell.
func ParseRole(value, baseARN string) (arn string, err error) {
	if isARN(value) {
		if err := checkRoleARN(value); err != nil {
			return "", fmt.Errorf("role %s: %w", quote(value), err)
		}
		return value, nil
	}
	short := strings.TrimPrefix(value, "/")
	if err := checkShortName(short); err != nil {
		return "", fmt.Errorf("role %s: %w", quote(value), err)
	}
	base, err := NormalizeBaseARN(baseARN)
	if err != nil {
		return "", fmt.Errorf("role %s: %w", quote(value), err)
	}
	arn = base + short
	if err := checkRoleARN(arn); err != nil { // the two together may be too long
		return "", fmt.Errorf("role %s: %w", quote(value), err)
	}
	return arn, nil
}

// NormalizeBaseARN returns base, the ARN under which roles without one lie, with a slash at its end:
// "arn:aws:iam::123456789012:role/", or the same with a path.
func NormalizeBaseARN(base string) (string, error) {
	if base == "" {
		return "", errors.New("no base ARN is set: name the role by its ARN, or set the base ARN")
	}
	resource, err := splitARN(base)
	if err != nil {
		return "", fmt.Errorf("base ARN %s: %w", quote(base), err)
	}
	if resource != "role" && !strings.HasPrefix(resource, "role/") {
		return "", fmt.Errorf(`base ARN %s: what follows the account is %s, not "role/"`, quote(base), quote(resource))
	}
	path := strings.TrimSuffix(strings.TrimPrefix(resource, "role"), "/") + "/"
	if err := checkPath(path); err != nil {
		return "", fmt.Errorf("base ARN %s: %w", quote(base), err)
	}
	return strings.TrimSuffix(base, "/") + "/", nil
}

// isARN says whether value is meant to be an ARN; capitals mean one too, which is then refused rather than taken for a
// name.
func isARN(value string) bool {
	return len(value) >= len("arn:") && strings.EqualFold(value[:len("arn:")], "arn:")
}

// splitARN checks everything of an IAM ARN up to the account, and returns what follows it.
func splitARN(arn string) (resource string, err error) {
	parts := strings.SplitN(arn, ":", 6)
	switch {
	case len(parts) < 6:
		return "", errors.New("the ARN has fewer than six parts; a role's is arn:aws:iam::123456789012:role/name")
	case parts[0] != "arn":
		return "", errors.New(`the ARN does not begin with "arn:"`)
	case !partitionFormat.MatchString(parts[1]):
		return "", fmt.Errorf("%s is not an AWS partition", quote(parts[1]))
	case parts[2] != "iam":
		return "", fmt.Errorf("it is an ARN of %s, not of iam", quote(parts[2]))
	case parts[3] != "":
		return "", fmt.Errorf("it names the region %s, and IAM has none", quote(parts[3]))
	case !accountFormat.MatchString(parts[4]):
		return "", fmt.Errorf("%s is not an account of 12 digits", quote(parts[4]))
	}
	return parts[5], nil
}

func checkRoleARN(arn string) error {
	resource, err := splitARN(arn)
	if err != nil {
		return err
	}
	short, ok := strings.CutPrefix(resource, "role/")
	if !ok {
		return fmt.Errorf(`what follows the account is %s, not "role/" and a name`, quote(resource))
	}
	return checkShortName(short)
}

// checkShortName checks what follows "role/": a name, or a path and a name.
func checkShortName(short string) error {
	slash := strings.LastIndexByte(short, '/')
	name := short[slash+1:]
	if err := checkPath("/" + short[:slash+1]); err != nil {
		return err
	}
	switch {
	case name == "":
		return errors.New("the role's name is empty")
	case len(name) > maxRoleName:
		return fmt.Errorf("the role's name has %d characters, and IAM allows %d", len(name), maxRoleName)
	case name == "." || name == "..":
		return errors.New("a role's name may not be made of dots only")
	}
	for _, c := range name {
		if !isNameCharacter(c) {
			return fmt.Errorf("the role's name holds %q; IAM allows letters, digits and +=,.@_-", c)
		}
	}
	return nil
}

// checkPath checks an IAM path, from its first to its last slash.
func checkPath(path string) error {
	if len(path) > maxRolePath {
		return fmt.Errorf("the role's path has %d characters, and IAM allows %d", len(path), maxRolePath)
	}
	if path == "/" {
		return nil
	}
	for segment := range strings.SplitSeq(path[1:len(path)-1], "/") {
		if segment == "" || segment == "." || segment == ".." {
			return fmt.Errorf("the role's path has the segment %q", segment)
		}
		for _, c := range segment {
			if !isNameCharacter(c) {
				return fmt.Errorf("the role's path holds %q; allowed are letters, digits and +=,.@_-", c)
			}
		}
	}
	return nil
}

// isNameCharacter says whether c may stand in the name of a role or of a session: IAM's and STS's [\w+=,.@-].
func isNameCharacter(c rune) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c < 0x80 && strings.ContainsRune("_+=,.@-", c)
}

// quote quotes what a user wrote, cut to a length that a log line and an Event can carry.
func quote(s string) string {
	const longest = 256
	if len(s) > longest {
		return fmt.Sprintf("%q…", s[:longest])
	}
	return fmt.Sprintf("%q", s)
}
