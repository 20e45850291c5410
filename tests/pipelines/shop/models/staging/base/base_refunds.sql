{{ config(materialized='ephemeral') }}

select payment_id, sum({{ amount('cents') }}) as refunded
from {{ source('raw', 'refunds') }}
group by payment_id
