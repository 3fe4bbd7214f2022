/** Functions that the user answers, and MCP servers. Each change applies to the next answer. */
import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { errorText } from '../../backend/contract.js';
import type { McpAddress, SettingsStore } from '../../state/settings.js';
import { exampleFunctions, parseFunctions } from '../../state/tools/functions.js';
import type { Tools } from '../../state/tools/tools.js';
import { Dialog } from '../dialog.js';
import { JsonField, SecretField } from '../fields.js';
import { ServerItem } from './server-item.js';

interface ToolsDialogProps {
  readonly tools: Tools;
  readonly settings: SettingsStore;
  readonly onClose: () => void;
}

export function ToolsDialog({ tools, settings, onClose }: ToolsDialogProps): JSX.Element {
  const { mcpServers, requiresCall } = settings.settings.value;
  const abort = useRef(new AbortController());
  useEffect(() => () => abort.current.abort(), []);
  // what fails is shown beside its server
  const connect = (): void => void tools.connect(abort.current.signal).catch(() => {});
  useEffect(connect, []);
  const update = (servers: readonly McpAddress[]): void => {
    settings.update({ mcpServers: servers });
    connect();
  };
  return (
    <Dialog title="Tools" onClose={onClose}>
      <p>The model may call these tools. Nothing is called without your consent.</p>
      <section aria-labelledby="servers-title">
        <h3 id="servers-title">MCP servers</h3>
        <ul class="servers">
          {mcpServers.map((server) => (
            <ServerItem
              key={server.url}
              {...{ server, tools, settings }}
              onConnect={connect}
              onSwitch={(isOn) =>
                update(mcpServers.map((other) => (other.url === server.url ? { ...other, isOn } : other)))
              }
              onRemove={() => update(mcpServers.filter(({ url }) => url !== server.url))}
            />
          ))}
        </ul>
        <AddServer
          known={mcpServers.map(({ url }) => url)}
          onAdd={(url, token) => {
            if (token !== '') settings.mcpTokens.value = { ...settings.mcpTokens.value, [url]: token };
            update([...mcpServers, { url, isOn: true }]);
          }}
        />
      </section>
      <FunctionsField settings={settings} />
      <label>
        <input
          type="checkbox"
          role="switch"
          checked={requiresCall}
          onChange={(event) => settings.update({ requiresCall: event.currentTarget.checked })}
        />
        The first answer to each message calls a tool
      </label>
    </Dialog>
  );
}

interface AddServerProps {
  readonly known: readonly string[];
  readonly onAdd: (url: string, token: string) => void;
}

function AddServer({ known, onAdd }: AddServerProps): JSX.Element {
  const [url, token, problem] = [useSignal(''), useSignal(''), useSignal('')];
  const onSubmit = (event: Event): void => {
    event.preventDefault();
    const address = url.value.trim();
    problem.value = addressProblem(address, known);
    if (problem.value !== '') return;
    onAdd(address, token.value.trim());
    url.value = '';
    token.value = '';
  };
  return (
    <form onSubmit={onSubmit} noValidate>
      <label>
        URL of a server (streamable HTTP)
        <input
          type="url"
          placeholder="https://example.com/mcp"
          value={url.value}
          aria-invalid={problem.value === '' ? undefined : true}
          aria-describedby="server-problem"
          onInput={(event) => (url.value = event.currentTarget.value)}
        />
        <small id="server-problem">{problem.value}</small>
      </label>
      <SecretField label="Token, if it wants one, kept until this tab closes" value={token} />
      <button type="submit">Add the server</button>
    </form>
  );
}

function addressProblem(address: string, known: readonly string[]): string {
  if (!/^https?:\/\//i.test(address) || !URL.canParse(address)) return 'Expected a URL with http or https.';
  return known.includes(address) ? 'This server is in the list.' : '';
}

function FunctionsField({ settings }: Pick<ToolsDialogProps, 'settings'>): JSX.Element {
  const { functions } = settings.settings.value;
  return (
    <section aria-labelledby="functions-title">
      <h3 id="functions-title">Functions</h3>
      <JsonField
        name="functions"
        label="A JSON array of functions, whose results you type in"
        rows={6}
        text={functions}
        problem={functionsProblem(functions)}
        onInput={(text) => settings.update({ functions: text })}
      />
      {functions.trim() === '' && (
        <button type="button" class="secondary" onClick={() => settings.update({ functions: exampleFunctions })}>
          Begin with an example
        </button>
      )}
    </section>
  );
}

function functionsProblem(text: string): string {
  try {
    parseFunctions(text);
    return '';
  } catch (error) {
    return errorText(error);
  }
}
