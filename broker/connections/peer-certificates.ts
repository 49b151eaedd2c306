import type { X509Certificate } from 'node:crypto';
import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import type { PresentedCertificate } from '../../src/ports/broker-ports.ts';
import type { BrokerClient } from '../client-types.ts';

/** Certificates besides its own that are looked at: no device needs more. */
const maxIntermediates = 4;

/** Certificates of TLS handshakes, until the CONNECT is checked. */
export class PeerCertificates {
  readonly #shown = new WeakMap<TLSSocket, PresentedCertificate>();

  /**
   * Reads what has been shown, once: Node gives the certificates that were sent along only the first time. False when a
   * client has sent more than any device has to; OpenSSL has checked the signatures of all of them by then.
   */
  read(socket: TLSSocket): boolean {
    const own = socket.destroyed ? undefined : socket.getPeerX509Certificate();
    if (!own) return true;
    const others: X509Certificate[] = [];
    // As they were sent, one after the other, no matter who has issued them.
    for (let next = own.issuerCertificate; next; next = next.issuerCertificate) {
      if (others.length === maxIntermediates) return false;
      others.push(next);
    }
    this.#shown.set(socket, { own, others });
    return true;
  }

  /** The certificate of a socket that serves HTTP: several requests may follow. Undefined without one, or with too many. */
  of(socket: Socket): PresentedCertificate | undefined {
    if (!(socket instanceof TLSSocket)) return undefined;
    if (!this.#shown.has(socket)) this.read(socket);
    return this.#shown.get(socket);
  }

  /** The certificate of a client, returned once; undefined without TLS or without a certificate. */
  take({ conn, request }: Pick<BrokerClient, 'conn' | 'request'>): PresentedCertificate | undefined {
    const socket = request?.socket ?? conn;
    if (!(socket instanceof TLSSocket)) return undefined;
    const shown = this.#shown.get(socket);
    this.#shown.delete(socket);
    return shown;
  }
}
