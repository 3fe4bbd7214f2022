/** What a terminal shows of tools: the question about a call, and the list of `/mcp`. */
import { callText, type CallRequest, type Consent, type ListedTool, type Toolbox } from '@winnow/mcp';
import { formatTable } from '../../terminal/format.js';

const answers: ReadonlyMap<string, Consent> = new Map([
  ['y', 'yes'],
  ['yes', 'yes'],
  ['n', 'no'],
  ['no', 'no'],
  ['a', 'always'],
  ['always', 'always'],
]);

/** Undefined for anything but an answer, so that the question is asked again. */
export function consentOf(line: string): Consent | undefined {
  return answers.get(line.trim().toLowerCase());
}

export function requestText(request: CallRequest): string {
  const { tool, server, arguments: values } = callText(request);
  return `The model wants to call ${tool} of the server ${server} with\n${values}\n`;
}

export function questionText(request: CallRequest): string {
  return `Call ${callText(request).tool}? y: yes, n: no, a: always in this chat > `;
}

/** Says that a call needs a terminal on which the user can consent. */
export function refusalText({ tool }: CallRequest): string {
  return `did not call ${tool}: nobody can be asked without a terminal; --mcp-allow ${tool} allows it`;
}

/** Servers, and below each a table of its tools. */
export function listText(toolbox: Toolbox): string {
  const sections = toolbox.list().map(({ server, tools }) => {
    const rows = tools.map((tool) => [`  ${tool.name}`, remarkOf(tool)]);
    return `${server.name} (${server.address})${server.isOpen ? '' : ': ended'}\n${formatTable(rows)}`;
  });
  return sections.join('');
}

function remarkOf({ description = '', fault, isAllowed }: ListedTool): string {
  if (fault !== undefined) return `not usable: ${fault}`;
  const [summary = ''] = description.split('\n');
  return isAllowed ? `(always allowed) ${summary}` : summary;
}
