package credentials

import (
	"regexp"
	"testing"
)

func FuzzBaseARN(f *testing.F) {
	for _, seed := range []string{
		"", "arn", "arn:aws:iam::111122223333:instance-profile/node", "arn:aws-cn:sts::111122223333:assumed-role/a/b",
		"arn:aws:iam::111122223333:root", "arn:aws:iam::111122223333:role/\n", ":::::", "arn:aws:iam::111122223333:role/a:b",
	} {
		f.Add(seed)
	}
	want := regexp.MustCompile(`\Aarn:aws[a-z0-9-]*:iam::[0-9]{12}:role/\z`)
	f.Fuzz(func(t *testing.T, identity string) {
		got, err := baseARN(identity)
		if (err == nil) != want.MatchString(got) {
			t.Errorf("%q: got %q, error %v, want a base ARN or an error", identity, got, err)
		}
	})
}
