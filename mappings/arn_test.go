package mappings

import (
	"regexp"
	"strings"
	"testing"
)

const base = "arn:aws:iam::123456789012:role/"

func TestParseRole(t *testing.T) {
	long := strings.Repeat("a", 64)
	for _, tt := range []struct {
		name, value, base, want string
		wantErr                 string // a part of it
	}{
		{"a name lies under the base ARN", "reader", base, base + "reader", ""},
		{"so does a path and name", "team/reader", base, base + "team/reader", ""},
		{"one leading slash is Kiam's spelling of the same", "/team/reader", base, base + "team/reader", ""},
		{"a base ARN may have a path", "reader", base + "team/", base + "team/reader", ""},
		{"a base ARN without its slash is not glued to the name", "admin", base + "team", base + "team/admin", ""},
		{"an ARN stands for itself", "arn:aws:iam::999999999999:role/x/y", base, "arn:aws:iam::999999999999:role/x/y", ""},
		{"an ARN needs no base", "arn:aws-us-gov:iam::999999999999:role/x", "", "arn:aws-us-gov:iam::999999999999:role/x", ""},
		{"any partition", "arn:aws-iso-b:iam::999999999999:role/x", base, "arn:aws-iso-b:iam::999999999999:role/x", ""},
		{"a name may have 64 characters", long, base, base + long, ""},
		{"all of IAM's characters", "a+=,.@_-Z9", base, base + "a+=,.@_-Z9", ""},

		{"but not 65", long + "a", base, "", "65 characters"},
		{"nothing", "", base, "", "name is empty"},
		{"a slash", "/", base, "", "name is empty"},
		{"a path without a name", "team/", base, "", "name is empty"},
		{"two leading slashes", "//reader", base, "", `segment ""`},
		{"a path that climbs", "../reader", base, "", `segment ".."`},
		{"a name that climbs", "team/..", base, "", "dots only"},
		{"white space within", "rea der", base, "", `holds ' '`},
		{"white space around", " reader", base, "", `holds ' '`},
		{"a line break", "reader\n", base, "", `holds '\n'`},
		{"not ASCII", "rôle", base, "", `holds 'ô'`},
		{"not UTF-8", "r\xff", base, "", `holds`},
		{"no base ARN", "reader", "", "", "no base ARN"},
		{"a path that is too long", strings.Repeat("a/", 256) + "x", base, "", "513 characters"},
		{"a path and a base ARN that are too long together", strings.Repeat("a/", 250) + "x", base + strings.Repeat("b/", 10), "", "521 characters"},
		{"a shell command", "x';reboot;'/y", base, "", `holds '\''`},

		{"Kiam's arn:x, which crashed its servers", "arn:x", base, "", "fewer than six parts"},
		{"arn: alone", "arn:", base, "", "fewer than six parts"},
		{"kube2iam's ARN in capitals", "ARN:aws:iam::123456789012:role/x", base, "", `does not begin with "arn:"`},
		{"an assumed role", "arn:aws:sts::123456789012:assumed-role/x/y", base, "", "not of iam"},
		{"a user", "arn:aws:iam::123456789012:user/x", base, "", `not "role/"`},
		{"a role's ARN without a name", "arn:aws:iam::123456789012:role/", base, "", "name is empty"},
		{"a role's ARN without a slash", "arn:aws:iam::123456789012:role", base, "", `not "role/"`},
		{"eleven digits", "arn:aws:iam::12345678901:role/x", base, "", "12 digits"},
		{"a wildcard for the account", "arn:aws:iam::*:role/x", base, "", "12 digits"},
		{"a region", "arn:aws:iam:eu-west-1:123456789012:role/x", base, "", "region"},
		{"no partition", "arn::iam::123456789012:role/x", base, "", "partition"},
		{"an ARN within a path", "evil/arn:aws:iam::123456789012:role/shared", base, "", `holds ':'`},
		{"an ARN within an ARN", "arn:aws:iam::666666666666:role/evil/arn:aws:iam::123456789012:role/shared", base, "", `holds ':'`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseRole(tt.value, tt.base)
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) || got != "" {
					t.Fatalf("ParseRole(%q) = %q, %v, want an error that says %q", tt.value, got, err, tt.wantErr)
				}
				return
			}
			if err != nil || got != tt.want {
				t.Fatalf("ParseRole(%q) = %q, %v, want %q", tt.value, got, err, tt.want)
			}
		})
	}
}

func TestNormalizeBaseARN(t *testing.T) {
	for _, tt := range []struct{ name, base, want string }{
		{"as it should be", base, base},
		{"without the slash", strings.TrimSuffix(base, "/"), base},
		{"with a path", base + "team", base + "team/"},
		{"with a path and a slash", base + "team/", base + "team/"},
		{"China", "arn:aws-cn:iam::123456789012:role", "arn:aws-cn:iam::123456789012:role/"},
		{"nothing", "", ""},
		{"a prefix of role", "arn:aws:iam::123456789012:rolex/", ""},
		{"an instance profile", "arn:aws:iam::123456789012:instance-profile/x", ""},
		{"an account that is none", "arn:aws:iam::1:role/", ""},
		{"two slashes", base + "/", ""},
		{"a wildcard", base + "*", ""},
		{"too few parts", "arn:aws:iam", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := NormalizeBaseARN(tt.base)
			if got != tt.want || (err == nil) != (tt.want != "") {
				t.Errorf("NormalizeBaseARN(%q) = %q, %v, want %q", tt.base, got, err, tt.want)
			}
		})
	}
}

// shape is what every parsed role looks like, written down independently of the parser.
var shape = regexp.MustCompile(`^arn:aws[a-z0-9-]*:iam::[0-9]{12}:role/([a-zA-Z0-9_+=,.@-]+/)*[a-zA-Z0-9_+=,.@-]{1,64}$`)

func FuzzParseRole(f *testing.F) {
	for _, seed := range []string{
		"reader", "/team/reader", "//x", "arn:x", "arn:aws:iam::123456789012:role/x", "arn:aws:iam::1:role/../x", "ARN:", "\x00", "a/arn:aws:iam::1:role/b", "..", "%2e%2e/x",
	} {
		f.Add(seed, base)
		f.Add(seed, base+"team")
	}
	f.Add("x", "arn:aws:iam::123456789012:role")
	f.Fuzz(func(t *testing.T, value, base string) {
		arn, err := ParseRole(value, base)
		if err != nil {
			return
		}
		if !shape.MatchString(arn) || len(arn[strings.Index(arn, "/"):])-64 > 512 {
			t.Fatalf("ParseRole(%q, %q) = %q, which is not a role's ARN", value, base, arn)
		}
		if again, err := ParseRole(arn, ""); again != arn || err != nil {
			t.Fatalf("ParseRole(%q) = %q, %v: it does not stand for itself", arn, again, err)
		}
		if strings.HasPrefix(value, "arn:") {
			if arn != value {
				t.Fatalf("ParseRole(%q) = %q: an ARN was changed", value, arn)
			}
			return
		}
		normal, err := NormalizeBaseARN(base)
		if short, ok := strings.CutPrefix(arn, normal); err != nil || !ok || short != strings.TrimPrefix(value, "/") {
			t.Fatalf("ParseRole(%q, %q) = %q, which is not that name under that base", value, base, arn)
		}
	})
}
