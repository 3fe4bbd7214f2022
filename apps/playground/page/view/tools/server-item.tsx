/** An MCP server of the list: whether it is used, how it is, and its tools. */
import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import type { McpAddress, SettingsStore } from '../../state/settings.js';
import type { ServerState } from '../../state/tools/connections.js';
import type { Tools } from '../../state/tools/tools.js';
import { SecretField } from '../fields.js';

interface ServerItemProps {
  readonly server: McpAddress;
  readonly tools: Tools;
  readonly settings: SettingsStore;
  readonly onConnect: () => void;
  readonly onSwitch: (isOn: boolean) => void;
  readonly onRemove: () => void;
}

export function ServerItem(props: ServerItemProps): JSX.Element {
  const { server, tools, onConnect, onSwitch, onRemove } = props;
  const { url, isOn } = server;
  const state = tools.connections.states.value.get(url);
  return (
    <li>
      <label>
        <input
          type="checkbox"
          role="switch"
          checked={isOn}
          onChange={(event) => onSwitch(event.currentTarget.checked)}
        />
        {url}
      </label>
      {isOn && <p role="status">{stateText(state)}</p>}
      {isOn && state?.state === 'failed' && (
        <>
          <p class="problem">{state.problem}</p>
          <TokenForm {...props} />
          <button type="button" class="quiet" onClick={onConnect}>
            Try again
          </button>
        </>
      )}
      {isOn && state?.state === 'open' && <ToolNames url={url} tools={tools} />}
      <button type="button" class="quiet" aria-label={`Remove ${url}`} onClick={onRemove}>
        Remove
      </button>
    </li>
  );
}

function stateText(state: ServerState | undefined): string {
  if (state === undefined) return 'Not connected';
  const { name, state: what } = state;
  return { connecting: 'Connecting…', open: `Connected to ${name}`, failed: 'Cannot be used' }[what];
}

/** Tokens do not outlive the tab, and servers may want another one. */
function TokenForm({ server: { url }, settings, onConnect }: ServerItemProps): JSX.Element {
  const token = useSignal('');
  const onSubmit = (event: Event): void => {
    event.preventDefault();
    settings.mcpTokens.value = { ...settings.mcpTokens.value, [url]: token.value.trim() };
    onConnect();
  };
  return (
    <form onSubmit={onSubmit}>
      <SecretField label={`Token of ${url}`} value={token} />
      <button type="submit" class="secondary">
        Use the token
      </button>
    </form>
  );
}

function ToolNames({ url, tools }: { readonly url: string; readonly tools: Tools }): JSX.Element | null {
  const listed = tools.toolbox.list().find(({ server }) => server.address === url);
  if (listed === undefined) return null;
  return (
    <details>
      <summary>{listed.tools.length} tools</summary>
      <ul>
        {listed.tools.map(({ name, description = '', fault, isAllowed }) => (
          <li key={name}>
            <code>{name}</code> {isAllowed && '(always allowed) '}
            {fault === undefined ? description : `cannot be used: ${fault}`}
          </li>
        ))}
      </ul>
    </details>
  );
}
