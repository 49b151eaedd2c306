/** Devices, organizations, end-users, templates, and who may do what with them. */
import '../registry/association.test.ts';
import '../registry/certificates.test.ts';
import '../registry/credentials.test.ts';
import '../registry/custom-fields.test.ts';
import '../registry/devices.test.ts';
import '../registry/end-users.test.ts';
import '../registry/explain.test.ts';
import '../registry/lists.test.ts';
import '../registry/long-lists.test.ts';
import '../registry/readers.test.ts';
import '../registry/matrix.test.ts';
import '../registry/organizations.test.ts';
import '../registry/overlaps.test.ts';
import '../registry/properties.test.ts';
import '../registry/races.test.ts';
import '../registry/templates.test.ts';
import '../registry/without-person.test.ts';
