with source as (

    select * from {{ source('raw', 'stores') }}

)

select
    id as store_id,
    name as store_name,
    country,
    {{ dbt.safe_cast('tax_rate', api.Column.translate_type('decimal(6,4)')) }} as tax_rate
from source
