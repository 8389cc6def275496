package sts

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The limits of AssumeRole.
//
// https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRole.html
const (
	minDuration, maxDuration     = 900, 43200 // seconds
	defaultDuration              = 3600
	maxTags, maxTagKey, maxValue = 50, 128, 256
)

var (
	sessionNames = regexp.MustCompile(`^[\w+=,.@-]*$`)
	externalIDs  = regexp.MustCompile(`^[\w+=,.@:/-]*$`)
	roleARNs     = regexp.MustCompile(`^arn:aws[a-z-]*:iam::\d{12}:role/(?:[\x21-\x7e]{1,510}/)?[\w+=,.@-]{1,64}$`)
)

type tag struct{ Key, Value string }

// constraints collects what a request violates, in the words of STS.
type constraints []string

func (c *constraints) violated(value any, field, constraint string) {
	*c = append(*c, fmt.Sprintf("Value '%v' at '%s' failed to satisfy constraint: Member must %s", value, field, constraint))
}

// text checks the length and the characters of a field.
func (c *constraints) text(value, field string, shortest, longest int, legal *regexp.Regexp) {
	if len(value) < shortest {
		c.violated(value, field, "have length greater than or equal to "+strconv.Itoa(shortest))
	}
	if len(value) > longest {
		c.violated(value, field, "have length less than or equal to "+strconv.Itoa(longest))
	}
	if legal != nil && !legal.MatchString(value) {
		c.violated(value, field, "satisfy regular expression pattern: "+strings.Trim(legal.String(), "^$"))
	}
}

func (c *constraints) err() *Error {
	switch len(*c) {
	case 0:
		return nil
	case 1:
		return invalid("1 validation error detected: " + (*c)[0])
	default:
		return invalid(fmt.Sprintf("%d validation errors detected: %s", len(*c), strings.Join(*c, "; ")))
	}
}

// validate checks the parameters that both actions on roles have, and those of AssumeRole alone where there are any.
func validate(form url.Values, call Call, tags []tag, chained bool, maxSession time.Duration) *Error {
	var c constraints
	c.text(call.RoleARN, "roleArn", 20, 2048, nil)
	c.text(call.SessionName, "roleSessionName", 2, 64, sessionNames)
	if _, given := form["ExternalId"]; given {
		c.text(call.ExternalID, "externalId", 2, 1224, externalIDs)
	}
	seconds := int64(call.Duration / time.Second)
	if seconds < minDuration {
		c.violated(seconds, "durationSeconds", "have value greater than or equal to "+strconv.Itoa(minDuration))
	}
	if seconds > maxDuration {
		c.violated(seconds, "durationSeconds", "have value less than or equal to "+strconv.Itoa(maxDuration))
	}
	if len(tags) > maxTags {
		c.violated(len(tags), "tags", "have length less than or equal to "+strconv.Itoa(maxTags))
	}
	seen := make(map[string]bool)
	duplicate := false
	for i, t := range tags {
		c.text(t.Key, fmt.Sprintf("tags.%d.member.key", i+1), 1, maxTagKey, nil)
		c.text(t.Value, fmt.Sprintf("tags.%d.member.value", i+1), 0, maxValue, nil)
		key := strings.ToLower(t.Key)
		duplicate = duplicate || seen[key]
		seen[key] = true
	}
	if err := c.err(); err != nil {
		return err
	}
	switch {
	case duplicate:
		return &Error{
			Code:    "InvalidParameterValue",
			Message: "Duplicate tag keys found. Please note that Tag keys are case insensitive.",
		}
	case !roleARNs.MatchString(call.RoleARN):
		return invalid(call.RoleARN + " is invalid")
	case chained && call.Duration > time.Hour:
		return invalid("The requested DurationSeconds exceeds the 1 hour session limit for roles assumed by role chaining.")
	case call.Duration > maxSession:
		return invalid("The requested DurationSeconds exceeds the MaxSessionDuration set for this role.")
	}
	return nil
}

// duration reads DurationSeconds.
func duration(form url.Values) (time.Duration, *Error) {
	value := form.Get("DurationSeconds")
	if value == "" {
		return defaultDuration * time.Second, nil
	}
	seconds, err := strconv.ParseInt(value, 10, 32)
	if err != nil {
		return 0, &Error{Code: "MalformedInput", Message: "DurationSeconds is not an integer"}
	}
	return time.Duration(seconds) * time.Second, nil
}

// readTags reads Tags.member.1.Key and so on.
func readTags(form url.Values) []tag {
	var tags []tag
	for i := 1; ; i++ {
		member := "Tags.member." + strconv.Itoa(i)
		if !form.Has(member+".Key") && !form.Has(member+".Value") {
			return tags
		}
		tags = append(tags, tag{form.Get(member + ".Key"), form.Get(member + ".Value")})
	}
}

// canonical is the JSON of tags sorted by key; empty for none.
func canonical(tags []tag) string {
	if len(tags) == 0 {
		return ""
	}
	sorted := slices.SortedFunc(slices.Values(tags), func(a, b tag) int { return cmp.Compare(a.Key, b.Key) })
	encoded, err := json.Marshal(sorted)
	if err != nil { // strings always marshal
		return ""
	}
	return string(encoded)
}
