/** String formats as regular expressions. Each accepts only valid strings, and nearly all of them. */

const day31 = '(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])';
const day30 = '(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)';
const day28 = '02-(?:0[1-9]|1\\d|2[0-8])'; // no leap days
const date = `\\d{4}-(?:${day31}|${day30}|${day28})`;
const clock = '(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?'; // no leap seconds
const zone = '(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)';
/** Without two hyphens side by side, which only encoded names have; so short that four labels stay below 253 characters. */
const label = '[A-Za-z0-9](?:-?[A-Za-z0-9]){0,29}';
const atom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,20}";
const byte = '(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)';
const hex16 = '[0-9a-fA-F]{1,4}';
const email = `${atom}(?:\\.${atom}){0,3}@(?:${label}\\.){1,4}[A-Za-z]{2,20}`;
const hostname = `${label}(?:\\.${label}){0,3}`;
/** Not the apostrophe, which templates of URIs cannot have. */
const urlChar = '(?:[A-Za-z0-9._~!$&()*+,;=:@-]|%[0-9A-Fa-f]{2})';
const urlPath = `(?:/${urlChar}*)*`;
const queryChar = '(?:[A-Za-z0-9._~!$&()*+,;=:@/?-]|%[0-9A-Fa-f]{2})';
const query = `(?:\\?${queryChar}*)?(?:#${queryChar}*)?`;
/** A scheme, then an authority that may be empty and a path, or a path that does not look like one. */
const uri = `[A-Za-z][A-Za-z0-9+.-]{0,15}:(?://(?:${hostname}(?::[1-9]\\d{0,3})?)?${urlPath}|/?${urlChar}+${urlPath})${query}`;
/** A colon in the first part would end a scheme. */
const relative = `/?[A-Za-z0-9._~-]+(?:/[A-Za-z0-9._~-]+)*/?${query}`;
const jsonPointer = '(?:/(?:[^~/\\u0000-\\u001f"\\\\]|~[01])*)*';

/** Formats of the specification by name. Others are annotations. */
export const formats: ReadonlyMap<string, string> = new Map([
  ['date', date],
  ['time', `${clock}${zone}`],
  ['date-time', `${date}T${clock}${zone}`],
  [
    'duration',
    'P(?:\\d{1,6}W|\\d{1,6}D|\\d{1,6}M(?:\\d{1,6}D)?|\\d{1,6}Y(?:\\d{1,6}M(?:\\d{1,6}D)?)?|' +
      '(?:\\d{1,6}D)?T\\d{1,6}(?:H(?:\\d{1,2}M(?:\\d{1,2}S)?)?|M(?:\\d{1,2}S)?|S))',
  ],
  ['email', email],
  ['idn-email', email],
  ['hostname', hostname],
  ['idn-hostname', hostname],
  ['ipv4', `(?:${byte}\\.){3}${byte}`],
  ['ipv6', `(?:${hex16}:){7}${hex16}|(?:${hex16}:){1,6}:${hex16}|::${hex16}|::`],
  ['uuid', '[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}'],
  ['uri', uri],
  ['uri-reference', `${uri}|${relative}`],
  ['iri', uri],
  ['iri-reference', `${uri}|${relative}`],
  ['uri-template', `${uri}|${relative}`],
  ['regex', '[A-Za-z0-9 _]*'],
  ['relative-json-pointer', `(?:0|[1-9]\\d{0,8})(?:#|${jsonPointer})`],
  ['json-pointer', jsonPointer],
]);
