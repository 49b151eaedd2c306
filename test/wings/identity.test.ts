/** Users, sessions and logins. */
import '../identity/applications.test.ts';
import '../identity/commands.test.ts';
import '../identity/federation.test.ts';
import '../identity/flood.test.ts';
import '../identity/grants.test.ts';
import '../identity/groups.test.ts';
import '../identity/identity-providers.test.ts';
import '../identity/login-limits.test.ts';
import '../identity/me.test.ts';
import '../identity/mfa.test.ts';
import '../identity/password-reset.test.ts';
import '../identity/passwords.test.ts';
import '../identity/profile.test.ts';
import '../identity/scim.test.ts';
import '../identity/sessions.test.ts';
import '../identity/tokens.test.ts';
import '../identity/users.test.ts';
